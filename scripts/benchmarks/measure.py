"""Numbers that were measured in turn, and what they come to; pure."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

#: The way that all others are compared with.
OURS = "mcjax-launch"


@dataclass(frozen=True)
class Spread:
    """The median of some values, and the middle half of them."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Of at least one value."""
        if len(values) < 2:
            return cls(values[0], values[0], values[0])
        low, median, high = statistics.quantiles(values, n=4, method="inclusive")
        return cls(median, low, high)


@dataclass(frozen=True)
class Measure:
    """One thing, measured in several ways that took turns.

    Args:
        title: what it is.
        unit: of the values.
        values: by way; the nth of each were measured in the same round.
        base: the way that the others are compared with.

    """

    title: str
    unit: str
    values: Mapping[str, Sequence[float]]
    base: str = OURS

    def ratio(self, way: str) -> Spread | None:
        """Return the base divided by a way, round by round; None for the base, or without it."""
        ours, theirs = self.values.get(self.base), self.values[way]
        if ours is None or way == self.base or not all(theirs):
            return None
        return Spread.of([a / b for a, b in zip(ours, theirs, strict=False)])


@dataclass(frozen=True)
class Grid:
    """Facts in words, by case and launcher.

    Args:
        title: what they are about.
        cells: by row and column; what is not there was not tried.

    """

    title: str
    cells: Mapping[str, Mapping[str, str]]

    @property
    def columns(self) -> list[str]:
        """All that are in any row, in order."""
        return list(dict.fromkeys(name for row in self.cells.values() for name in row))


Result = Measure | Grid


def to_json(results: Mapping[str, Sequence[Result]]) -> dict[str, object]:
    """By benchmark, as what `json` can write: also the medians and ratios, for readers."""
    return {name: [_as_dict(result) for result in found] for name, found in results.items()}


def _as_dict(result: Result) -> dict[str, object]:
    found = asdict(result)
    if isinstance(result, Measure):
        found["spread"] = {way: asdict(Spread.of(got)) for way, got in result.values.items()}
        ratios = {way: result.ratio(way) for way in result.values}
        found["ratio"] = {way: asdict(ratio) for way, ratio in ratios.items() if ratio is not None}
    return found


def from_json(saved: Mapping[str, Sequence[Mapping[str, object]]]) -> dict[str, list[Result]]:
    """Return the results from what `to_json` returned."""
    return {name: [_from_dict(entry) for entry in found] for name, found in saved.items()}


def _from_dict(saved: Mapping[str, object]) -> Result:
    cls = Grid if "cells" in saved else Measure
    fields = {name: saved[name] for name in cls.__dataclass_fields__}
    return cls(**fields)  # type: ignore[arg-type]

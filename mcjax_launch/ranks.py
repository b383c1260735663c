"""Sets of ranks as text, read and written; pure."""

import re
from collections.abc import Iterable

_RANGE = r"\s*([0-9]+)(?:-([0-9]+))?\s*"


def ranges(ranks: Iterable[int]) -> str:
    """Ranks as `0-2,5`; what `parse_ranges` reads."""
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    return ",".join(f"{low}" if low == high else f"{low}-{high}" for low, high in runs)


def parse_ranges(text: str) -> frozenset[int]:
    """The ranks that `0` or `0-2,5` stands for.

    Raises:
        ValueError: it is not written like that.

    """
    ranks: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(_RANGE, part)
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise ValueError(f"{text!r} is not a set of ranks: write 0 or 0,4-7")
        ranks.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return frozenset(ranks)


def these_ranks(ranks: Iterable[int]) -> str:
    """Ranks as `rank 3` or `ranks 0-2,5`."""
    ranks = set(ranks)
    return f"rank{'s' if len(ranks) > 1 else ''} {ranges(ranks)}"


def have(ranks: Iterable[int]) -> str:
    """The verb after `these_ranks`: `has` or `have`."""
    return "have" if len(set(ranks)) > 1 else "has"


def counted(number: int, noun: str) -> str:
    """A number of things, as `1 rank` or `2 ranks`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"

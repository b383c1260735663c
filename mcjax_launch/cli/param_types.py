"""Types of option values: text from the command line or the environment to a typed value."""

import re
from typing import Any

import click

from mcjax_launch.ranks import parse_ranges

_UNITS_S = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}
_NUMBER = r"(?:\d+(?:\.\d+)?)"
_PARTS = "".join(f"(?:({_NUMBER}){unit})?" for unit in _UNITS_S)


class Duration(click.ParamType):  # type: ignore[type-arg]
    """Seconds, written as `90`, `90s`, `5m`, `1h30m` or `1d`."""

    name = "duration"

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        if isinstance(value, float):
            return value
        text = str(value).strip()
        if re.fullmatch(_NUMBER, text):
            return float(text)
        match = re.fullmatch(_PARTS, text)
        if match is None or not text:
            self.fail(f"{value!r} is not a duration: write 90, 90s, 5m, 1h30m or 1d", param, ctx)
        parts = zip(match.groups(), _UNITS_S.values(), strict=True)
        return sum(float(number) * seconds for number, seconds in parts if number is not None)


class Limit(click.ParamType):  # type: ignore[type-arg]
    """A duration that something may take; 0 is None, for no limit."""

    name = "limit"

    def convert(self, value: Any, param: Any, ctx: Any) -> float | None:
        return Duration().convert(value, param, ctx) or None


class Ranks(click.ParamType):  # type: ignore[type-arg]
    """A set of ranks, written as `0` or `0,4-7`."""

    name = "ranks"

    def convert(self, value: Any, param: Any, ctx: Any) -> frozenset[int]:
        if isinstance(value, frozenset):
            return value
        try:
            return parse_ranges(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class WholeNumber(click.ParamType):  # type: ignore[type-arg]
    """A whole number with a lower bound."""

    name = "number"

    def __init__(self, minimum: int) -> None:
        self._minimum = minimum

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        try:
            number = int(value)
        except ValueError:
            number = self._minimum - 1
        if number < self._minimum:
            self.fail(f"{value!r} is not a whole number of {self._minimum} or more", param, ctx)
        return number

"""Types of option values: text from the command line or the environment to a typed value."""

import re
from typing import Any

import click

from mcjax_launch.ranks import parse_ranges, whole_number

_UNITS_S = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
# 30 years: what is longer has no end either, and its arithmetic is safe.
_LONGEST_S = 1e9


class Duration(click.ParamType):  # type: ignore[type-arg]
    """Seconds, written as `90`, `90s`, `5m` or `2h`."""

    name = "duration"

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        if isinstance(value, float):
            return value
        match = re.fullmatch(r"(\d+(?:\.\d+)?)(s|m|h|)", str(value).strip())
        if match is None:
            self.fail(f"{value!r} is not a duration: write 90, 90s, 5m or 2h", param, ctx)
        return min(float(match[1]) * _UNITS_S[match[2]], _LONGEST_S)


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
    """A whole number within bounds."""

    name = "number"

    def __init__(self, minimum: int, maximum: int) -> None:
        self._minimum = minimum
        self._maximum = maximum

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        try:
            return whole_number(str(value).strip(), self._minimum, self._maximum)
        except ValueError as error:
            self.fail(f"{value!r} is {error}", param, ctx)

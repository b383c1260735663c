"""Types of option values: text from the command line or the environment to a typed value."""

import re
from typing import Any

import click

from mcjax_launch.ranks import parse_ranges

_UNITS_S = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


class Duration(click.ParamType):  # type: ignore[type-arg]
    """Seconds, written as `90`, `90s`, `5m` or `2h`."""

    name = "duration"

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        if isinstance(value, float):
            return value
        match = re.fullmatch(r"(\d+(?:\.\d+)?)(s|m|h|)", str(value).strip())
        if match is None:
            self.fail(f"{value!r} is not a duration: write 90, 90s, 5m or 2h", param, ctx)
        return float(match[1]) * _UNITS_S[match[2]]


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

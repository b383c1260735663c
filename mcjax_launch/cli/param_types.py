"""Types of option values: text from the command line or the environment to a typed value."""

import re
from typing import Any

import click

from mcjax_launch.ranks import parse_ranges, whole_number

_UNITS_S = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}
_NUMBER = r"(?:\d+(?:\.\d+)?)"
_PARTS = "".join(f"(?:({_NUMBER}){unit})?" for unit in _UNITS_S)
# 30 years: what is longer has no end either, and its arithmetic is safe.
_LONGEST_S = 1e9


class Duration(click.ParamType):  # type: ignore[type-arg]
    """Seconds, written as `90`, `90s`, `5m`, `1h30m` or `1d`."""

    name = "duration"

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        if isinstance(value, float):
            return value
        text = str(value).strip()
        if re.fullmatch(_NUMBER, text):
            return min(float(text), _LONGEST_S)
        match = re.fullmatch(_PARTS, text)
        if match is None or not text:
            self.fail(f"{value!r} is not a duration: write 90, 90s, 5m, 1h30m or 1d", param, ctx)
        parts = zip(match.groups(), _UNITS_S.values(), strict=True)
        total = sum(float(number) * seconds for number, seconds in parts if number is not None)
        return min(total, _LONGEST_S)


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


class SomeRanks(Ranks):
    """A set of ranks, `all` of them or `none`, which is the empty set."""

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        words = {"all": "all", "none": frozenset()}
        known = words.get(value) if isinstance(value, str) else None
        return super().convert(value, param, ctx) if known is None else known


class Wrap(click.ParamType):  # type: ignore[type-arg]
    """A command that ranks run under, written as `[RANKS:]COMMAND`; checked, and left as it is."""

    name = "wrapper"
    envvar_list_splitter = "\n"  # of a variable with several: a command has spaces

    def convert(self, value: Any, param: Any, ctx: Any) -> str:
        from mcjax_launch.job.wrappers import parse

        try:
            parse(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)
        return str(value)


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


class Modules(click.ParamType):  # type: ignore[type-arg]
    """Names of Python modules, written as `jax` or `jax,flax.linen`."""

    name = "modules"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        names = tuple(name.strip() for name in str(value).split(",") if name.strip())
        for name in names:
            if not all(part.isidentifier() for part in name.split(".")):
                self.fail(f"{name!r} is not the name of a module: write jax,flax", param, ctx)
        return names

"""Kinds of values that options take: from text, or a program's own value, to a typed one; pure.

Each is called with the value, and raises a ValueError that says what is wrong with it.
"""

from __future__ import annotations

import math
import re
from typing import Any

from mcjax_launch.protocol.value import Value
from mcjax_launch.ranks import MOST_RANKS, parse_ranges, whole_number

HIGHEST_PORT = 65535
COLORS = ("auto", "always", "never")
BIND_CORES = ("auto", "on", "off")
ENV_STYLES = ("torch",)
SLICES = ("auto", "one", "host")

_MOST_GPUS = 1024
# As a manifest writes it, which cannot calculate.
_GROUPED = r"([0-9]{1,9})\*([0-9]{1,9})\+([0-9]{1,9})"

_UNITS_S = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}
_NUMBER = r"(?:\d+(?:\.\d+)?)"
_PARTS = "".join(f"(?:({_NUMBER}){unit})?" for unit in _UNITS_S)
# 30 years: what is longer has no end either, and its arithmetic is safe.
_LONGEST_S = 1e9


def duration(value: Any) -> float:
    """Seconds, also written as `90`, `90s`, `5m`, `1h30m` or `1d`."""
    if isinstance(value, (int, float)) and 0 <= value <= math.inf:
        return min(float(value), _LONGEST_S)
    text = str(value).strip()
    if re.fullmatch(_NUMBER, text):
        return min(float(text), _LONGEST_S)
    match = re.fullmatch(_PARTS, text)
    if match is None or not text:
        raise ValueError(f"{value!r} is not a duration: write 90, 90s, 5m, 1h30m or 1d")
    parts = zip(match.groups(), _UNITS_S.values(), strict=True)
    total = sum(float(number) * seconds for number, seconds in parts if number is not None)
    return min(total, _LONGEST_S)


def host_rank(value: Any) -> int:
    """A number from 0 on; also `1*4+3`, the fourth of four in the second group."""
    grouped = re.fullmatch(_GROUPED, str(value))
    if grouped is None:
        return Number(0, 10**9)(value)
    group, size, number = map(int, grouped.groups())
    return group * size + number


def limit(value: Any) -> float | None:
    """A duration that something may take; 0 is None, for no limit."""
    return duration(value) or None


def ranks(value: Any) -> frozenset[int]:
    """A set of ranks, also written as `0` or `0,4-7`."""
    if isinstance(value, (str, int)):
        return parse_ranges(str(value))
    numbers = frozenset(value)
    for number in numbers:
        whole_number(str(number), 0, MOST_RANKS - 1)
    return numbers


def some_ranks(value: Any) -> Any:
    """A set of ranks, `all` of them or `none`, which is the empty set."""
    words = {"all": "all", "none": frozenset()}
    known = words.get(value) if isinstance(value, str) else None
    return ranks(value) if known is None else known


def wrapper(value: Any) -> str:
    """A command that ranks run under, written as `[RANKS:]COMMAND`; checked, and left as it is."""
    from mcjax_launch.job.wrappers import parse

    parse(str(value))
    return str(value)


def slices(value: Any) -> Any:
    """How many slices the ranks are, or one of SLICES."""
    if value in SLICES:
        return value
    try:
        return whole_number(str(value).strip(), 1, MOST_RANKS)
    except ValueError:
        raise ValueError(f"{value!r} is not {', '.join(SLICES)} or a number of slices") from None


def gpus(value: Any) -> Any:
    """How many GPUs a rank gets, or "all" of its host's."""
    if value == "all":
        return value
    try:
        return whole_number(str(value).strip(), 1, _MOST_GPUS)
    except ValueError:
        raise ValueError(
            f"{value!r} is not a number of GPUs from 1 to {_MOST_GPUS}, or all"
        ) from None


def check_slices(slices: str | int, ranks: int) -> None:
    """Raise a ValueError where so many ranks are not so many equal slices."""
    if isinstance(slices, int) and ranks % slices:
        raise ValueError(
            f"{ranks} ranks cannot be split into {slices} equal slices; choose a divisor of {ranks}"
        )


def modules(value: Any) -> tuple[str, ...]:
    """Names of Python modules, also written as `jax` or `jax,flax.linen`."""
    words = value.split(",") if isinstance(value, str) else map(str, value)
    names = tuple(name.strip() for name in words if name.strip())
    for name in names:
        if not all(part.isidentifier() for part in name.split(".")):
            raise ValueError(f"{name!r} is not the name of a module: write jax,flax")
    return names


class Number(Value):
    """A whole number within bounds."""

    least: int
    most: int

    def __call__(self, value: Any) -> int:
        try:
            return whole_number(str(value).strip(), self.least, self.most)
        except ValueError as error:
            raise ValueError(f"{value!r} is {error}") from None

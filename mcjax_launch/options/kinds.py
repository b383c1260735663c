"""Kinds of option values: conversion of text, or of an API value, to a typed value; pure.

Each function that reads or checks a value raises a ValueError with a message for the user.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from mcjax_launch.options import wrappers
from mcjax_launch.options.removed import find_replacement
from mcjax_launch.ranks import MOST_RANKS, parse_ranges, parse_whole_number
from mcjax_launch.wire.value import Value

HIGHEST_PORT = 65535

# Written by manifests, which cannot calculate: GROUP*SIZE+NUMBER.
_GROUPED = r"([0-9]{1,9})\*([0-9]{1,9})\+([0-9]{1,9})"

_UNITS_S = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}
_NUMBER = r"(?:\d+(?:\.\d+)?)"
_PARTS = "".join(f"(?:({_NUMBER}){unit})?" for unit in _UNITS_S)
# 30 years: as good as no limit, and safe to calculate with.
_LONGEST_S = 1e9


def parse_duration(value: Any) -> float:
    """Read a duration in seconds, such as `90`, `90s`, `5m`, `1h30m` or `1d`."""
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


def parse_host_rank(value: Any) -> int:
    """Read a number from 0; `1*4+3` is number 3 of group 1, in groups of 4."""
    grouped = re.fullmatch(_GROUPED, str(value))
    if grouped is None:
        return int(COUNT.read(value))
    group, size, number = map(int, grouped.groups())
    return group * size + number


def parse_limit(value: Any) -> float | None:
    """Read a time limit in seconds; 0 becomes None, for no limit."""
    return parse_duration(value) or None


def parse_ranks(value: Any) -> frozenset[int]:
    """Read a set of ranks, such as `0` or `0,4-7`."""
    if isinstance(value, (str, int)):
        return parse_ranges(str(value))
    numbers = frozenset(value)
    for number in numbers:
        parse_whole_number(str(number), 0, MOST_RANKS - 1)
    return numbers


def parse_some_ranks(value: Any) -> Any:
    """Read a set of ranks, `all`, or `none`, which becomes the empty set."""
    words = {"all": "all", "none": frozenset()}
    known = words.get(value) if isinstance(value, str) else None
    return parse_ranks(value) if known is None else known


def parse_size(text: str) -> int | None:
    """Return the bytes of a size such as `5G` or `80GiB`; None if it is none."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGT])(?:i?B)?", text, re.IGNORECASE)
    return found and int(float(found[1]) * 1024 ** (1 + "KMGT".index(found[2].upper())))


def check_slices(slices: str | int, ranks: int) -> None:
    """Raise a ValueError if a number of slices does not divide the number of ranks equally."""
    if isinstance(slices, int) and ranks % slices:
        raise ValueError(
            f"{ranks} ranks cannot be split into {slices} equal slices; choose a divisor of {ranks}"
        )


def parse_text(value: Any) -> str:
    """Read a text or a path."""
    if not isinstance(value, (str, os.PathLike)):
        raise ValueError(f"{value!r} is neither text nor a path")
    return os.fspath(value)


def parse_texts(value: Any) -> tuple[str, ...]:
    """Read a text or path, or an iterable of them, as a tuple."""
    return (
        (parse_text(value),)
        if isinstance(value, (str, os.PathLike))
        else tuple(map(parse_text, value))
    )


def _parse_variables(value: Any) -> tuple[str, ...]:
    if isinstance(value, list):  # as on a command line
        return parse_texts(value)
    if not isinstance(value, Mapping):
        raise ValueError(f"{value!r} is not a mapping of names to values")
    return tuple(f"{name}={content}" for name, content in value.items())


def _parse_hosts(value: Any) -> str | tuple[str, ...]:
    if not isinstance(value, (str, os.PathLike)):
        return tuple(map(parse_text, value))
    if os.fspath(value) == "-":
        raise ValueError("standard input is the program's own; give a file, or a list of hosts")
    return os.fspath(value)


Offers = str | Callable[[], Iterable[tuple[str, str]]]


class Kind(Value):
    """A kind of option value.

    Args:
        read: converts a value to its type; raises a ValueError with a message for the user.
        metavar: placeholder for the value in --help.
        accepts: type annotation of the API's keyword; "" for the type of the value.
        of_keyword: converts the whole value of the API's keyword; None to use `read`.
        choices: all valid values; empty if there are many.
        offers: what shells complete it to: "files", "folders", "ranks", or the pairs of a value and
            its description that a function returns; or "".
        listed_by: option that lists the values; "" for none.
        follows: for an optional value: returns whether a word is the value rather than PROGRAM;
            None to decide by `read`.
        omitted: for an optional value: the value if it is left out.

    """

    read: Callable[[Any], Any]
    metavar: str = ""
    accepts: str = ""
    of_keyword: Callable[[Any], Any] | None = None
    choices: tuple[str, ...] = ()
    offers: Offers = ""
    listed_by: str = ""
    follows: Callable[[str], bool] | None = None
    omitted: str = "all"


def make_number_kind(least: int, most: int, metavar: str = "N") -> Kind:
    """Return the kind of a whole number from `least` to `most`."""

    def read(value: Any) -> int:
        try:
            return parse_whole_number(str(value).strip(), least, most)
        except ValueError as error:
            raise ValueError(f"{value!r} is {error}") from None

    return Kind(read, metavar)


def make_word_or_number_kind(words: Collection[str], most: int, metavar: str, what: str) -> Kind:
    """Return the kind of one of some words, or of a number from 1 on; `what` says so."""

    def read(value: Any) -> Any:
        if value in words:
            return value
        try:
            return parse_whole_number(str(value).strip(), 1, most)
        except ValueError:
            raise ValueError(f"{value!r} is not {what}") from None

    return Kind(read, metavar)


def make_choice_kind(*choices: str) -> Kind:
    """Return the kind of a value that must be one of `choices`."""

    def read(value: Any) -> Any:
        if value not in choices:
            raise ValueError(f"{value!r} is not one of {', '.join(choices)}")
        return value

    return Kind(read, "|".join(choices), choices=choices)


def _parse_via(value: Any) -> str:
    if removed := find_replacement(f"via={value}"):
        raise ValueError(f"{value!r} {removed}")
    return parse_text(value)


def make_checked_kind(
    check: Callable[[str], object], metavar: str, accepts: str, offers: Offers = ""
) -> Kind:
    """Return the kind of a text that `check` accepts, and that stays as it is written."""

    def read(value: Any) -> str:
        check(parse_text(value))
        return parse_text(value)

    return Kind(read, metavar, accepts, offers=offers)


TEXT = Kind(parse_text)
FILE = Kind(parse_text, "FILE", "Path", offers="files")
FOLDER = Kind(parse_text, "DIR", "Path", offers="folders")
VIA = Kind(_parse_via, "COMMAND")
COORDINATOR = Kind(parse_text, "HOST[:PORT]")
PATHS = Kind(parse_text, "PATH", "Path | Sequence[Path]", offers="files")
VARIABLES = Kind(parse_text, "NAME[=VALUE]", "Mapping[str, object]", of_keyword=_parse_variables)
HOSTS = Kind(
    parse_text, "FILE|LIST|-", "Path | Sequence[str]", of_keyword=_parse_hosts, offers="files"
)
WRAPPERS = make_checked_kind(wrappers.parse, "[RANKS:]COMMAND", "Words")
RANKS = Kind(parse_ranks, "RANKS", "str | int | Set[int] | Sequence[int]")
SOME_RANKS = Kind(parse_some_ranks, "RANKS|all|none", offers="ranks")
DURATION = Kind(parse_duration, "D", "Duration")
LIMIT = Kind(parse_limit, "D", "Duration")
GPUS = make_word_or_number_kind(("all",), 1024, "K|all", "a number of GPUs from 1 to 1024, or all")
SLICES = make_word_or_number_kind(
    ("auto", "one", "host"), MOST_RANKS, "auto|one|host|K", "auto, one, host or a number of slices"
)
HOST_RANK = Kind(parse_host_rank, "I")
COUNT = make_number_kind(0, 10**9)
ONE_OR_MORE = make_number_kind(1, MOST_RANKS)
STATUS = make_number_kind(0, 255, "STATUS")
PORT = make_number_kind(1, HIGHEST_PORT, "PORT")

"""Kinds of option values: conversion of text, or of an API value, to a typed value; pure.

Each function that reads or checks a value raises a ValueError with a message for the user.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from mcjax_launch.options import wrappers
from mcjax_launch.options.removed import find_replacement
from mcjax_launch.ranks import MOST_RANKS, parse_ranges, parse_whole_number
from mcjax_launch.wire.value import Value

HIGHEST_PORT = 65535

#: By default a profile begins this many seconds after initialize().
PROFILE_AFTER_S = 10.0
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


def parse_job(value: Any) -> str:
    """Read the id of a detached job, or its first digits."""
    if not re.fullmatch("[0-9a-f]{1,8}", str(value)):
        raise ValueError(f"{value!r} is not the id of a detached job: --jobs lists them")
    return str(value)


def parse_latest_job(value: Any) -> str:
    """Read a detached job's id; "" for `latest`, or if the value is left out."""
    return "" if value in ("all", "latest") else parse_job(value)


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


# MiB of memory that NVIDIA's driver reports for its GPUs.
_GPUS_MIB = {
    "l4": 23034,
    "a100-40g": 40960,
    "a100": 81920,
    "h100": 81559,
    "h200": 143771,
    "b200": 183359,
}


def parse_chip(value: Any) -> str:
    """Read a size of memory, such as `80G`, a GPU, such as `h100`, or a TPU slice, as `v5e:8x8`."""
    text = str(value).strip()
    if parse_memory(text) is None and not re.fullmatch(r"v\d[a-z\d]*:\d+(?:x\d+)*", text):
        gpus = ", ".join(_GPUS_MIB)
        raise ValueError(
            f"{value!r} is neither memory (80G), nor a TPU slice (v5e:8x8), nor {gpus}"
        )
    return text


def parse_memory(text: str) -> int | None:
    """Return the bytes of a size, or of a GPU's memory; None if the text is neither."""
    mib = _GPUS_MIB.get(text.lower())
    return parse_size(text) if mib is None else mib << 20


def parse_size(text: str) -> int | None:
    """Return the bytes of a size such as `5G` or `80GiB`; None if it is none."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGT])(?:i?B)?", text, re.IGNORECASE)
    return found and int(float(found[1]) * 1024 ** (1 + "KMGT".index(found[2].upper())))


def split_profile(words: str) -> tuple[str, float]:
    """Divide `DIR[@D]` into the folder and D in seconds (10 if it is left out)."""
    folder, mark, after = words.rpartition("@")
    is_timed = bool(mark) and after[:1].isdigit()
    if not is_timed:
        folder = words
    if not folder.strip(":@"):
        raise ValueError(f"{words!r} names no folder: write DIR or DIR@30s")
    return folder, parse_duration(after) if is_timed else PROFILE_AFTER_S


def split_cache(value: str) -> tuple[str, int]:
    """Divide `DIR[:SIZE]` into the folder and the size in bytes; 0 for no limit."""
    folder, colon, size = value.rpartition(":")
    has_size = bool(colon) and os.sep not in size
    if not has_size:
        folder = value
    kept = parse_size(size) if has_size else 0
    if has_size and not kept:
        raise ValueError(f"{size!r} is not a size: write DIR or DIR:5G")
    if not folder:
        raise ValueError(f"{value!r} names no folder: write DIR or DIR:5G")
    return folder, kept or 0


def check_slices(slices: str | int, ranks: int) -> None:
    """Raise a ValueError if a number of slices does not divide the number of ranks equally."""
    if isinstance(slices, int) and ranks % slices:
        raise ValueError(
            f"{ranks} ranks cannot be split into {slices} equal slices; choose a divisor of {ranks}"
        )


def parse_modules(value: Any) -> tuple[str, ...]:
    """Read names of Python modules, as `jax,flax.linen`; `none` becomes ()."""
    words = value.split(",") if isinstance(value, str) else map(str, value)
    names = tuple(name.strip() for name in words if name.strip())
    if names == ("none",):
        return ()
    for name in names:
        if not all(part.isidentifier() for part in name.split(".")):
            raise ValueError(f"{name!r} is not the name of a module: write jax,flax")
    return names


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


def may_be_watched(word: str) -> bool:
    """Return whether a word after --watch is its PATH, because it cannot be PROGRAM."""
    if os.path.isdir(word):
        return True
    return os.path.isfile(word) and not word.endswith(".py") and not os.access(word, os.X_OK)


class Kind(Value):
    """A kind of option value.

    Args:
        read: converts a value to its type; raises a ValueError with a message for the user.
        metavar: placeholder for the value in --help.
        accepts: type annotation of the API's keyword; "" for the type of the value.
        of_keyword: converts the whole value of the API's keyword; None to use `read`.
        choices: all valid values; empty if there are many.
        offers: name of the function in `cli/completion.py` for completion in shells; or "".
        follows: for an optional value: returns whether a word is the value rather than PROGRAM;
            None to decide by `read`.
        omitted: for an optional value: the value if it is left out.

    """

    read: Callable[[Any], Any]
    metavar: str = ""
    accepts: str = ""
    of_keyword: Callable[[Any], Any] | None = None
    choices: tuple[str, ...] = ()
    offers: str = ""
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


def make_text_kind(option: str, metavar: str) -> Kind:
    """Return the kind of a text option; it names texts that the option no longer takes."""

    def read(value: Any) -> str:
        if removed := find_replacement(f"{option}={value}"):
            raise ValueError(f"{value!r} {removed}")
        return parse_text(value)

    return Kind(read, metavar)


def make_checked_kind(
    check: Callable[[str], object], metavar: str, accepts: str, offers: str = ""
) -> Kind:
    """Return the kind of a text that `check` accepts, and that stays as it is written."""

    def read(value: Any) -> str:
        check(parse_text(value))
        return parse_text(value)

    return Kind(read, metavar, accepts, offers=offers)


TEXT = Kind(parse_text)
FILE = Kind(parse_text, "FILE", "Path", offers="files")
FOLDER = Kind(parse_text, "DIR", "Path", offers="folders")
PROFILE = make_checked_kind(split_profile, "DIR[@D]", "Path", offers="folders")
VIA = make_text_kind("via", "COMMAND")
COORDINATOR = make_text_kind("coordinator", "HOST[:PORT]")
CACHE = make_checked_kind(split_cache, "DIR[:SIZE]", "Path", offers="folders")
PATHS = Kind(parse_text, "PATH", "Path | Sequence[Path]", offers="files")
WATCHED = Kind(parse_text, "[PATH]", offers="files", follows=may_be_watched)
VARIABLES = Kind(parse_text, "NAME[=VALUE]", "Mapping[str, object]", of_keyword=_parse_variables)
HOSTS = Kind(
    parse_text, "FILE|LIST|-", "Path | Sequence[str]", of_keyword=_parse_hosts, offers="files"
)
WRAPPERS = make_checked_kind(wrappers.parse, "[RANKS:]COMMAND", "Words")
MODULES = Kind(parse_modules, "MODULES", "Words")
RANKS = Kind(parse_ranks, "RANKS", "str | int | Set[int] | Sequence[int]")
SOME_RANKS = Kind(parse_some_ranks, "RANKS|all|none", offers="ranks")
PREVIEW = Kind(parse_some_ranks, "[RANKS]", offers="ranks", omitted="0")
CHIP = Kind(parse_chip, "TYPE:TOPOLOGY|SIZE")
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
JOB = Kind(parse_job, "ID", offers="jobs")
LATEST_JOB = Kind(
    parse_latest_job, "[ID]", offers="jobs", follows=lambda word: not word.startswith("-")
)

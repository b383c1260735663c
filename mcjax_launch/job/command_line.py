"""The command line that was given, written out again; pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mcjax_launch.options.options import Options
from mcjax_launch.ranks import ranges


def command_line(options: Options, given: Iterable[str]) -> list[str]:
    """All words after `mcjax-launch`: the options of these names, PROGRAM and its arguments."""
    words = [word for name in given for word in option_words(options, name)]
    return [*words, "--", *options.program]


def option_words(options: Options, name: str) -> tuple[str, ...]:
    """The option of this name as it would be written on the command line."""
    option, value = Options.declared[name], getattr(options, name)
    if isinstance(value, bool):
        return (option.long,) if value else ()
    if option.repeats:
        return tuple(word for item in value for word in (option.long, item))
    return option.long, _word(value)


def _word(value: Any) -> str:
    if value is None:  # a limit that is none
        return "0"
    if isinstance(value, frozenset):
        return ranges(value) or "none"
    if isinstance(value, tuple):
        return ",".join(value)
    # Never 1e+06, which is not a duration.
    return f"{value:f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)

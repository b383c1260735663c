"""The command line that was given, written out again; pure."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from mcjax_launch.kernel.wire.value import Value
from mcjax_launch.options.options import Options
from mcjax_launch.ranks import ranges


class CommandLine(Value):
    """The options that the user gave, on the command line or in the environment, and the program.

    Args:
        options: each with its name, such as `num_hosts`, and its words, such as
            `("--num-hosts", "2")`.
        program: PROGRAM and its arguments.

    """

    options: tuple[tuple[str, tuple[str, ...]], ...]
    program: tuple[str, ...]

    def words(self, without: Collection[str] = ()) -> list[str]:
        """All words after `mcjax-launch`.

        Args:
            without: names of options to leave out.

        """
        kept = [word for name, words in self.options if name not in without for word in words]
        return [*kept, "--", *self.program]


def command_line(options: Options, given: Collection[str]) -> CommandLine:
    """The command line with the options of these names."""
    return CommandLine(
        tuple((name, option_words(options, name)) for name in given), options.program
    )


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

"""From click's context to the command line that the user gave."""

from typing import Any

import click
from click.core import ParameterSource

from mcjax_launch.cli.options import Options
from mcjax_launch.job.command_line import CommandLine
from mcjax_launch.ranks import ranges


def command_line(context: click.Context, options: Options) -> CommandLine:
    """The command line again, with options from the environment written out."""
    given: list[tuple[str, tuple[str, ...]]] = []
    for parameter in context.command.params:
        name = str(parameter.name)
        source = context.get_parameter_source(name)
        is_given = source not in (None, ParameterSource.DEFAULT) and parameter.expose_value
        if is_given and isinstance(parameter, click.Option):
            given.append((name, _words(parameter, getattr(options, name))))
    return CommandLine(tuple(given), options.program)


def _words(option: click.Option, value: Any) -> tuple[str, ...]:
    """An option as it would be written on the command line."""
    name = max(option.opts, key=len)
    if option.is_flag:
        return (name,) if value else ()
    if option.multiple:
        return tuple(word for item in value for word in (name, item))
    return name, _as_word(value)


def _as_word(value: str | int | float | frozenset[int] | tuple[str, ...] | None) -> str:
    if value is None:  # a limit that is none
        return "0"
    if isinstance(value, frozenset):
        return ranges(value) or "none"
    if isinstance(value, tuple):
        return ",".join(value)
    # Never 1e+06, which is not a duration.
    return f"{value:f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)

"""From click's context to the command line that the user gave."""

import click
from click.core import ParameterSource

from mcjax_launch.job.command_line import CommandLine
from mcjax_launch.request.options import Options
from mcjax_launch.request.words import words


def command_line(context: click.Context, options: Options) -> CommandLine:
    """The command line again, with options from the environment written out."""
    given: list[tuple[str, tuple[str, ...]]] = []
    for parameter in context.command.params:
        name = str(parameter.name)
        source = context.get_parameter_source(name)
        is_given = source not in (None, ParameterSource.DEFAULT) and parameter.expose_value
        if is_given and isinstance(parameter, click.Option):
            long, value = max(parameter.opts, key=len), getattr(options, name)
            given.append((name, tuple(words(long, value, repeats=parameter.multiple))))
    return CommandLine(tuple(given), options.program)

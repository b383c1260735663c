"""From click's context to the command line that the user gave."""

import click
from click.core import ParameterSource

from mcjax_launch.job.command_line import CommandLine
from mcjax_launch.options.options import Options
from mcjax_launch.options.words import words


def command_line(context: click.Context, options: Options) -> CommandLine:
    """The command line again, with options from the environment written out."""
    source = context.get_parameter_source
    left_out = (None, ParameterSource.DEFAULT)
    given = [name for name in Options.declared if source(name) not in left_out]
    return CommandLine(tuple((name, words(options, name)) for name in given), options.program)

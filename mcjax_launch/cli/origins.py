"""Origins of options: the command line, a variable, or the project's file."""

import os
from collections.abc import Iterator

import click
from click.core import ParameterSource

from mcjax_launch.options.option import PROJECT_FILE, without_values
from mcjax_launch.options.options import Options


def list_options_from(context: click.Context, *sources: ParameterSource) -> list[str]:
    """Return the names of the options whose values came from one of these sources."""
    source = context.get_parameter_source
    return [name for name in Options.declared if source(name) in sources]


def list_set_options(context: click.Context) -> list[str]:
    """Return the names of the options that the user or the project has set."""
    return [
        *list_options_from(context, ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT),
        *list_options_from(context, ParameterSource.DEFAULT_MAP),  # pyproject.toml
    ]


def find_origin(parameter: click.Parameter, context: click.Context) -> str | None:
    """Return the environment variable, or the file, that has set an option; None for neither."""
    if parameter.name is None:
        return None
    source = context.get_parameter_source(parameter.name)
    if source is ParameterSource.DEFAULT_MAP:
        return PROJECT_FILE
    if source is not ParameterSource.ENVIRONMENT:
        return None
    variables = parameter.envvar or f"{context.auto_envvar_prefix}_{parameter.name.upper()}"
    if isinstance(variables, str):
        return variables
    return next(variable for variable in variables if os.environ.get(variable))


def describe_origins(options: Options, context: click.Context) -> Iterator[str]:
    """Yield a line on each origin of options, with the options and values that come from there."""
    from mcjax_launch.job.describe import make_option_words

    found: dict[str, list[str]] = {}
    for parameter in context.command.params:
        if parameter.name in Options.declared and (origin := find_origin(parameter, context)):
            found.setdefault(origin, []).extend(make_option_words(options, parameter.name))
    for origin, words in found.items():
        if words:  # not only a flag that is off
            import shlex  # few runs say so

            yield f"from {origin}: {shlex.join(without_values(words))}"


def rewrite_words(options: Options, context: click.Context) -> list[str]:
    """Return the command line with options from the environment and the project written out."""
    from mcjax_launch.job.describe import make_command_line

    return make_command_line(options, list_set_options(context))

"""What click finds wrong with a command line, in the launcher's own format."""

import os

import click
from click.core import ParameterSource


def in_one_line(error: click.ClickException) -> str:
    """An error as `--option: what is wrong with it`, without a full stop."""
    if isinstance(error, click.NoSuchOption):
        hint = f"; did you mean {error.possibilities[0]}?" if error.possibilities else ""
        return f"{error.option_name}: no such option{hint}"
    message = " ".join(error.format_message().split())
    if isinstance(error, click.BadParameter) and error.param is not None:
        message = f"{_name(error.param, error.ctx)}: {error.message}"
    elif isinstance(error, click.BadOptionUsage):
        # "Option '-n' requires an argument."
        quoted = f"Option {error.option_name!r} "
        message = f"{error.option_name}: {error.message.removeprefix(quoted)}"
    return message.removesuffix(".")


def _name(parameter: click.Parameter, context: click.Context | None) -> str:
    """The option's long name, with the variable that its value came from, if it did."""
    name = max(parameter.opts, key=len)
    if context is None or parameter.name is None:
        return name
    if context.get_parameter_source(parameter.name) is not ParameterSource.ENVIRONMENT:
        return name
    variables = parameter.envvar or f"{context.auto_envvar_prefix}_{parameter.name.upper()}"
    if not isinstance(variables, str):
        variables = next(variable for variable in variables if os.environ.get(variable))
    return f"{name} (from {variables})"

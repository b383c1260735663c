"""What is wrong with a command line, in the launcher's own format."""

import os
import re
from collections.abc import Sequence

import click
from click.core import ParameterSource

from mcjax_launch.cli.familiar import advice
from mcjax_launch.cli.help import WORDS
from mcjax_launch.cli.options import divided


def in_one_line(error: click.ClickException) -> str:
    """An error of click's as `--option: what is wrong with it`, without a full stop."""
    words: Sequence[str] = ()
    ours: set[str] = set()
    if isinstance(error, click.UsageError) and error.ctx is not None:
        params = error.ctx.command.params
        words, _ = divided(error.ctx.meta.get(WORDS, ()), params)
        ours = {name for param in params for name in param.opts}
    name = error.option_name if isinstance(error, click.NoSuchOption) else ""
    if (known := advice(name, words, ours)) is not None:
        return f"{known[0]}: no such option; {known[1]}"
    if isinstance(error, click.NoSuchOption):
        hint = f"; did you mean {error.possibilities[0]}?" if error.possibilities else ""
        return f"{name}: no such option{hint}"
    message = " ".join(error.format_message().split())
    if isinstance(error, click.BadParameter) and error.param is not None:
        message = f"{_name(error.param, error.ctx)}: {error.message}"
    elif isinstance(error, click.BadOptionUsage):
        # "Option '-n' requires an argument."
        quoted = f"Option {error.option_name!r} "
        message = f"{error.option_name}: {error.message.removeprefix(quoted)}"
    return message.removesuffix(".")


def with_variable(message: str, context: click.Context) -> str:
    """An error that begins with an option, as `-n 8: ...`: with the variable that set it."""
    first = re.match("[^ :]*", message)
    assert first is not None
    head = message.partition(": ")[0] if ": " in message else first[0]
    for option in context.command.params:
        variable = _variable(option, context)
        if first[0] in option.opts and variable is not None:
            return f"{head} (from {variable}){message[len(head) :]}"
    return message


def _name(parameter: click.Parameter, context: click.Context | None) -> str:
    """The option's long name, with the variable that its value came from, if it did."""
    name = max(parameter.opts, key=len)
    variable = _variable(parameter, context) if context is not None else None
    return name if variable is None else f"{name} (from {variable})"


def _variable(parameter: click.Parameter, context: click.Context) -> str | None:
    """The variable that gave the option its value; None if none did."""
    if parameter.name is None:
        return None
    if context.get_parameter_source(parameter.name) is not ParameterSource.ENVIRONMENT:
        return None
    variables = parameter.envvar or f"{context.auto_envvar_prefix}_{parameter.name.upper()}"
    if isinstance(variables, str):
        return variables
    return next(variable for variable in variables if os.environ.get(variable))

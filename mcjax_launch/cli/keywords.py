"""Options of the command as keywords of a session."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

import click
from click.core import ParameterSource

from mcjax_launch.cli.origins import list_options_from, list_set_options
from mcjax_launch.errors import LaunchError
from mcjax_launch.job.describe import make_option_words
from mcjax_launch.options.options import Options


def make_keywords(
    options: Options,
    context: click.Context,
    own: Collection[str] = (),
    *,
    whose: str = "sessions",
    reasons: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return the keywords of `session` for options that a command line, variable or project sets.

    Args:
        options: the options.
        context: click's context.
        own: names of options that are not for the session.
        whose: sessions, or those that make one, in words.
        reasons: reasons why these lack an option, by its name, in place of the API's.

    Raises:
        LaunchError: they do not have an option.

    """
    typed = list_options_from(context, ParameterSource.COMMANDLINE)
    keywords: dict[str, Any] = {"processes": None}  # as many as the command starts
    for name in list_set_options(context):
        option = Options.declared[name]
        words = make_option_words(options, name)
        is_for_others = option.only_command and option.in_project and name not in typed
        if name in own or is_for_others:
            continue
        if why := reasons.get(name) or option.only_command:
            raise LaunchError(f"{option.long} is not for {whose}: {why}")
        if option.kind is None:
            keywords[option.keyword or name] = bool(words)
        elif option.repeats:
            keywords[option.keyword or name] = list(words[1::2])
        else:
            keywords[option.keyword or name] = words[1]
    return keywords

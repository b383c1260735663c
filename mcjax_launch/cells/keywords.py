"""Options of the command as keywords of a session."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mcjax_launch.errors import LaunchError
from mcjax_launch.job.describe import make_option_words
from mcjax_launch.options.options import Options


def make_keywords(options: Options, given: Iterable[str]) -> dict[str, Any]:
    """Return the keywords of `session` for options.

    Args:
        options: the options.
        given: names of those to convert.

    Raises:
        LaunchError: sessions do not have an option.

    """
    keywords: dict[str, Any] = {"processes": None}  # as many as the command starts
    for name in given:
        option = Options.declared[name]
        words = make_option_words(options, name)
        if option.only_command:
            raise LaunchError(f"{option.long} is not for sessions: {option.only_command}")
        if option.kind is None:
            keywords[option.keyword or name] = bool(words)
        elif option.repeats:
            keywords[option.keyword or name] = list(words[1::2])
        else:
            keywords[option.keyword or name] = words[1]
    return keywords

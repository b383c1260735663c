"""Keywords of `launch` and `run`: the command's options, under the same names."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Mapping, Sequence
from typing import Any

from mcjax_launch.errors import LaunchError
from mcjax_launch.options.options import Options
from mcjax_launch.options.removed import find_replacement
from mcjax_launch.python.signature import Keywords

#: The keywords that are no options.
NO_OPTIONS = ("echo", "on_line", "on_event")
#: The options that are keywords, by their names here.
DECLARED = {
    option.keyword or name: option
    for name, option in Options.declared.items()
    if not option.only_command
}


def make_options(program: Sequence[str], keywords: Mapping[str, object]) -> Options:
    """Return the options that the keywords give.

    Args:
        program: PROGRAM and arguments of the command line.
        keywords: keywords that are options of the command.

    Raises:
        LaunchError: a keyword has a value that its option rejects.
        TypeError: a keyword is unknown.

    """
    given: dict[str, Any] = {}
    for keyword, value in keywords.items():
        if keyword not in DECLARED:
            raise TypeError(f"unexpected keyword argument {keyword!r}{_suggest_keyword(keyword)}")
        if value is None:
            continue
        option = DECLARED[keyword]
        try:
            given[option.name] = option.read(value)
        except (ValueError, TypeError) as error:
            raise LaunchError(f"{keyword}: {error}") from None
    return Options(program=tuple(program), **given)


def _suggest_keyword(keyword: str) -> str:
    if removed := find_replacement(keyword):
        return f", which {removed}"
    for option in Options.declared.values():
        if keyword in (option.name, *(short.strip("-") for short in option.short)):
            if option.only_command:
                return f"; only the command has that: {option.only_command}"
            return f"; it is {option.keyword or option.name!r} here"
    import difflib

    near = difflib.get_close_matches(keyword, Keywords.__annotations__, 1)
    return f"; did you mean {near[0]!r}?" if near else ""


def list_option_names(keywords: Mapping[str, object]) -> list[str]:
    """Return the option names of keywords whose value is not None."""
    given = (name for name, value in keywords.items() if value is not None)
    return [DECLARED[name].name for name in given]


def get_default(keyword: str) -> object:
    """Return the default value of a keyword."""
    if keyword in NO_OPTIONS:
        return False if keyword == "echo" else None
    value = DECLARED[keyword].default
    return None if value == () else value


@functools.cache
def _get_types() -> dict[str, Any]:
    """Return the keywords' types; `Keywords.__annotations__` has only their text."""
    return typing.get_type_hints(Keywords)


def add_keywords(function: Any, **defaults: object) -> Any:
    """Add all keywords to a function's signature, for help() and notebooks; return the function.

    Args:
        function: function with `**keywords` as its last parameter.
        defaults: defaults of keywords that differ from the options' defaults.

    """
    signature = inspect.signature(function)
    *own, _ = signature.parameters.values()
    known = {parameter.name for parameter in own}
    kind = inspect.Parameter.KEYWORD_ONLY
    more = [
        inspect.Parameter(
            name, kind, default=defaults.get(name, get_default(name)), annotation=annotation
        )
        for name, annotation in _get_types().items()
        if name not in known
    ]
    function.__signature__ = signature.replace(parameters=[*own, *more])
    return function

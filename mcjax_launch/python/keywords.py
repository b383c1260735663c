"""Keywords of `launch` and `run`: the command"s options, under the same names."""

from __future__ import annotations

import difflib
import inspect
import os
import typing
from collections.abc import Mapping, Sequence, Set
from typing import Any, Literal, TypedDict

from mcjax_launch.errors import LaunchError
from mcjax_launch.options.options import Options
from mcjax_launch.options.removed import find_replacement
from mcjax_launch.python.result import OnEvent, OnLine

Path = str | os.PathLike[str]
Duration = float | str
Words = str | Sequence[str]


class Keywords(TypedDict, total=False):
    """Keywords of `launch`; None means not given.

    Most are options of the command, see docs/reference.md. Durations are in seconds, or written as
    on the command line: "5m".
    """

    # Written by scripts/options.
    processes: int | None
    module: bool
    python: Path | None
    chdir: Path | None
    env: Mapping[str, object] | None
    env_file: Path | Sequence[Path] | None
    env_style: Literal["torch"] | None
    wrap: Words | None
    no_hook: bool
    cpu_devices: int | None
    gpus_per_process: int | Literal["all"] | None
    tpu_chips_per_process: int | None
    slices: Literal["auto", "one", "host"] | int
    cpu_transfers: bool
    bind_cores: Literal["auto", "on", "off"]
    hosts: Path | Sequence[str] | None
    procs_per_host: int | None
    via: str | None
    sync: Path | Sequence[Path] | None
    no_host_cache: bool
    coordinator: str | None
    num_hosts: int | None
    host_rank: int | None
    log_dir: Path | None
    show: str | int | Set[int] | Sequence[int] | None
    collapse: Literal["always", "auto", "never"]
    timestamps: bool
    no_prefix: bool
    color: Literal["auto", "always", "never"]
    quiet: bool
    verbose: bool
    timeout: Duration | None
    start_timeout: Duration | None
    stall_timeout: Duration | None
    grace: Duration | None
    max_restarts: int
    preempted_status: int | None
    compile_once: Literal["auto", "on", "off"]
    compile_cache: Path | None
    mtls: Literal["auto", "on", "off"]
    preload: Words
    profile: Path | None
    verify_spmd: bool
    report: Path | None
    setup: str | None
    on_rank_failure: Literal["stop", "continue"]

    # Only for a program.
    echo: bool
    on_line: OnLine | None
    on_event: OnEvent | None


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
    near = difflib.get_close_matches(keyword, Keywords.__annotations__, 1)
    return f"; did you mean {near[0]!r}?" if near else ""


def list_option_names(keywords: Mapping[str, object]) -> list[str]:
    """Return the option names of keywords whose value is not None."""
    given = (name for name, value in keywords.items() if value is not None)
    return [DECLARED[name].name for name in given]


def add_keywords(function: Any, **defaults: object) -> Any:
    """Add all keywords to a function"s signature, for help() and notebooks; return the function.

    Args:
        function: function with `**keywords` as its last parameter.
        defaults: defaults of keywords that differ from the options" defaults.

    """
    signature = inspect.signature(function)
    *own, _ = signature.parameters.values()
    known = {parameter.name for parameter in own}
    default = {name: option.default for name, option in DECLARED.items()}
    default |= {"echo": False, "on_line": None, "on_event": None, **defaults}
    more = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None if default[name] == () else default[name],
            annotation=annotation,
        )
        for name, annotation in typing.get_type_hints(Keywords).items()
        if name in default and name not in known  # else it is of a feature that this copy lacks
    ]
    function.__signature__ = signature.replace(parameters=[*own, *more])
    return function

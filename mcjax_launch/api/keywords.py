"""The keywords of `launch` and `run`: the options of the command, under the same names."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, Literal, TypedDict

from mcjax_launch.api.events import OnEvent, OnLine
from mcjax_launch.errors import LaunchError
from mcjax_launch.ranks import MOST_RANKS
from mcjax_launch.request import kinds
from mcjax_launch.request.options import Options
from mcjax_launch.request.words import words

Path = str | os.PathLike[str]
Duration = float | str
Words = str | Sequence[str]


class Keywords(TypedDict, total=False):
    """What `launch` takes by name; a None is as good as nothing.

    Each is an option of the command, see docs/options.md. Durations are in seconds, or written as
    on the command line: "5m". The last three are what only a program wants.
    """

    processes: int | None
    module: bool
    python: Path | None
    chdir: Path | None
    env: Mapping[str, object] | None
    env_style: Literal["torch"] | None
    wrap: Words | None
    no_hook: bool
    preload: Words | None

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
    coordinator: str | None
    num_hosts: int | None
    host_rank: int | None

    log_dir: Path | None
    show: str | int | Set[int] | Sequence[int] | None
    collapse: bool
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
    min_hosts: int | None

    debugpy: int | None
    verify_spmd: bool
    profile: Path | None
    profile_after: Duration
    report: Path | None

    echo: bool
    on_line: OnLine | None
    on_event: OnEvent | None


#: The keywords that have another name than their option.
RENAMED = {"processes": "num_processes"}
# The command's short names.
_SHORT = {"n": "processes", "d": "cpu_devices", "C": "chdir", "q": "quiet", "v": "verbose"}
#: The keywords that are no options.
NO_OPTIONS = {"echo", "on_line", "on_event"}
#: The options that only a command has, and why.
ONLY_COMMAND = {
    "program": "comes by position",
    "stdin": "standard input is the calling program's",
    "pdb": "the terminal is the calling program's",
    "status": "the terminal is the calling program's",
    "github": "the log is the calling program's",
    "check": "prints a table",
    "dry_run": "is for reading",
    "emit": "runs nothing",
    **dict.fromkeys(("image", "name", "namespace", "tpu", "engine_option"), "is for --emit"),
}

_SEVERAL = frozenset({"env", "wrap", "sync"})
_RANKS = kinds.Number(1, MOST_RANKS)
_COUNT = kinds.Number(0, 10**9)


def _text(value: Any) -> str:
    if not isinstance(value, (str, os.PathLike)):
        raise ValueError(f"{value!r} is neither text nor a path")
    return os.fspath(value)


def _one_of(names: Sequence[str]) -> Callable[[Any], Any]:
    def chosen(value: Any) -> Any:
        if value not in names:
            raise ValueError(f"{value!r} is not one of {', '.join(names)}")
        return value

    return chosen


def _texts(value: Any) -> tuple[str, ...]:
    return (_text(value),) if isinstance(value, (str, os.PathLike)) else tuple(map(_text, value))


def _variables(value: Any) -> tuple[str, ...]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{value!r} is no mapping of names to values")
    return tuple(f"{name}={content}" for name, content in value.items())


def _hosts(value: Any) -> str | tuple[str, ...]:
    if isinstance(value, (str, os.PathLike)):
        if os.fspath(value) == "-":
            raise ValueError("standard input is the program's own; give a file, or a list of hosts")
        return os.fspath(value)
    return tuple(map(_text, value))


#: By option: what makes a typed value of one; what is missing here is a flag.
KINDS: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(
        ("python", "chdir", "via", "coordinator", "log_dir", "profile", "report"), _text
    ),
    "env": _variables,
    "env_style": _one_of(kinds.ENV_STYLES),
    "wrap": lambda value: tuple(map(kinds.wrapper, _texts(value))),
    "preload": kinds.modules,
    "sync": _texts,
    "hosts": _hosts,
    "show": kinds.ranks,
    "color": _one_of(kinds.COLORS),
    "bind_cores": _one_of(kinds.BIND_CORES),
    "gpus_per_process": kinds.gpus,
    "tpu_chips_per_process": kinds.Number(1, 1024),
    "slices": kinds.slices,
    "debugpy": kinds.Number(1, kinds.HIGHEST_PORT),
    **dict.fromkeys(("num_processes", "cpu_devices", "procs_per_host"), _RANKS),
    **dict.fromkeys(("num_hosts", "min_hosts"), _RANKS),
    "host_rank": kinds.host_rank,
    "max_restarts": _COUNT,
    **dict.fromkeys(("timeout", "start_timeout", "stall_timeout"), kinds.limit),
    **dict.fromkeys(("grace", "profile_after"), kinds.duration),
}


def options_of(program: Sequence[str], keywords: Mapping[str, object]) -> Options:
    """The options that keywords stand for.

    Args:
        program: PROGRAM and its arguments.
        keywords: those that are options.

    Raises:
        LaunchError: a value is not what its option takes.
        TypeError: there is no such keyword.

    """
    given: dict[str, Any] = {}
    for keyword, value in keywords.items():
        if keyword not in Keywords.__annotations__:
            raise TypeError(f"unexpected keyword argument {keyword!r}{_hint(keyword)}")
        if value is None:
            continue
        option = RENAMED.get(keyword, keyword)
        try:
            given[option] = KINDS.get(option, bool)(value)
        except (ValueError, TypeError) as error:
            raise LaunchError(f"{keyword}: {error}") from None
    return Options(program=tuple(program), **given)


def _hint(keyword: str) -> str:
    renamed = {option: name for name, option in RENAMED.items()} | _SHORT
    if keyword in renamed:
        return f"; it is {renamed[keyword]!r} here"
    if keyword in ONLY_COMMAND:
        return f"; only the command has that: {ONLY_COMMAND[keyword]}"
    import difflib

    near = difflib.get_close_matches(keyword, Keywords.__annotations__, 1)
    return f"; did you mean {near[0]!r}?" if near else ""


def as_words(options: Options, keywords: Mapping[str, object]) -> list[str]:
    """The command line that stands for the keywords, for the job's record."""
    names = [RENAMED.get(name, name) for name, value in keywords.items() if value is not None]
    found = [
        word
        for name in names
        for word in words(
            f"--{name.replace('_', '-')}", getattr(options, name), repeats=name in _SEVERAL
        )
    ]
    return [*found, "--", *options.program]


def default(keyword: str) -> object:
    """What a keyword means where it is not given."""
    if keyword in NO_OPTIONS:
        return False if keyword == "echo" else None
    value = getattr(Options, RENAMED.get(keyword, keyword))
    return None if value == () else value


def with_keywords(function: Any, **defaults: object) -> Any:
    """The function with all keywords in its signature, for help() and a notebook's Shift-Tab.

    Args:
        function: has `**keywords` last.
        defaults: of keywords that have others than their options.

    """
    signature = inspect.signature(function)
    *own, _ = signature.parameters.values()
    known = {parameter.name for parameter in own}
    kind = inspect.Parameter.KEYWORD_ONLY
    more = [
        inspect.Parameter(
            name, kind, default=defaults.get(name, default(name)), annotation=annotation
        )
        for name, annotation in Keywords.__annotations__.items()
        if name not in known
    ]
    function.__signature__ = signature.replace(parameters=[*own, *more])
    return function

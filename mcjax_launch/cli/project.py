"""Options of a project: the table [tool.mcjax-launch] of pyproject.toml in the current folder."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from typing import Any

import click
from click.core import ParameterSource

from mcjax_launch.cli.own_lines import say
from mcjax_launch.errors import LaunchError
from mcjax_launch.machine import own_paths
from mcjax_launch.machine.known_schedulers import find_scheduler
from mcjax_launch.machine.system import read_regular_file
from mcjax_launch.options import features as declared
from mcjax_launch.options import kinds
from mcjax_launch.options.option import PROJECT_FILE, Option
from mcjax_launch.options.options import Options

_TABLE = "[tool.mcjax-launch]"
# Options that name files which decide what runs, as the hosts' Pythons and PYTHONPATH do.
_FILES = frozenset({"hosts", "env_file"})
# The name of the table as part of a key. In most projects it is at most a requirement, and without
# the table the file is not parsed.
_KEY = re.compile(rb"tool[\"']?\s*\.\s*[\"']?mcjax-launch|mcjax-launch[\"']?\s*(?:\.|=(?!=))")
_MOST_BYTES = 4 << 20
# Sources of options that the project sets: --watch reads the table again before each run.
_UNSET = (ParameterSource.DEFAULT, ParameterSource.DEFAULT_MAP)


def with_project_options(options: Options, context: click.Context) -> Options:
    """Return the options, with those of the folder's project; the API's client has none."""
    if context.obj is not None or not os.path.exists(PROJECT_FILE):
        return options
    completed = complete(options, context)
    if line := describe_commands(completed, context):
        say(line)  # also with --quiet: a cloned repository's file has chosen what runs
    return completed


def complete(options: Options, context: click.Context) -> Options:
    """Return the options, with the project's values of those that nothing else sets.

    Args:
        options: options of the command line and of variables.
        context: click's context, which gets the source of the project's values.

    Raises:
        LaunchError: the table is not valid, or other users can change it.

    """
    own = {
        name: value
        for name, value in read_options().items()
        if context.get_parameter_source(name) in _UNSET
    }
    for name in _list_irrelevant(options):
        own.pop(name, None)
    for name in own:
        context.set_parameter_source(name, ParameterSource.DEFAULT_MAP)
    completed = options.copy_with(**own)
    for name in own.keys() & _FILES:
        _check_files(name, getattr(completed, name))
    return completed


def describe_commands(options: Options, context: click.Context) -> str:
    """Return a line with the project's options that decide what runs where; "" for none."""
    of_project = [
        name
        for name, option in Options.declared.items()
        if option.decides_what_runs
        and context.get_parameter_source(name) is ParameterSource.DEFAULT_MAP
    ]
    if not of_project:
        return ""
    import shlex

    from mcjax_launch.job.describe import make_option_words

    words = (word for name in of_project for word in make_option_words(options, name))
    return f"{PROJECT_FILE} sets {shlex.join(words)}"


def _list_irrelevant(options: Options) -> Iterator[str]:
    """Yield the names of options that the project does not mean for a command line."""
    if options.num_hosts or find_scheduler(os.environ) is not None:
        yield from ("hosts", "via")  # a scheduler chooses the hosts
    yield from declared.collect("list_irrelevant", options)


def _check_files(name: str, paths: str | Sequence[str]) -> None:
    """Refuse files that an option of the project names, if other users can change them."""
    for path in [paths] if isinstance(paths, str) else paths:
        if os.path.isfile(path) and (why := own_paths.explain_distrusted_file(path)):
            raise LaunchError(
                f"{PROJECT_FILE}: {_TABLE} {name.replace('_', '-')}: {path} decides what runs, and "
                f"{why}"
            )


def read_options() -> dict[str, Any]:
    """Return the values of the options in the table, by the options' names; {} without a table.

    Raises:
        LaunchError: the table is not valid, or other users can change it.

    """
    try:
        data = read_regular_file(PROJECT_FILE, _MOST_BYTES)
    except OSError:
        return {}
    if not _KEY.search(data):
        return {}
    import tomllib

    try:
        tool = tomllib.loads(data.decode()).get("tool", {})
    except ValueError as error:
        raise LaunchError(f"{PROJECT_FILE}: {str(error)[:1].lower()}{str(error)[1:]}") from None
    table = tool.get("mcjax-launch", {}) if isinstance(tool, dict) else {}
    if table:
        _check_owner()
    if not isinstance(table, dict):
        raise LaunchError(f"{PROJECT_FILE}: tool.mcjax-launch is not a table: write {_TABLE}")
    return dict(_read_entry(key, value) for key, value in table.items())


def _check_owner() -> None:
    """Refuse the table if other users can change it: it may name commands to run."""
    if why := own_paths.explain_distrusted_file(PROJECT_FILE):
        raise LaunchError(f"{PROJECT_FILE}: {_TABLE} may name commands to run, and {why}")


def _read_entry(key: str, value: Any) -> tuple[str, Any]:
    """Return the name of the option that an entry of the table sets, and its value.

    Raises:
        LaunchError: there is no such option, the file cannot set it, or the value is not valid.

    """
    where = f"{PROJECT_FILE}: {_TABLE} {key}"
    option = Options.declared.get(key.replace("-", "_"))
    if option is None or key != option.long.removeprefix("--"):
        raise LaunchError(f"{where}: no such option{_suggest_key(key)}")
    if not (option.in_project and option.in_environ):
        raise LaunchError(f"{where}: only the command line sets {option.long}")
    try:
        return option.name, _read(option, value)
    except (TypeError, ValueError) as error:
        raise LaunchError(f"{where}: {error}") from None


def _read(option: Option, value: Any) -> Any:
    """Return a value of TOML as the option has it.

    Raises:
        ValueError: the value is not valid.

    """
    if option.kind is None or isinstance(value, bool):
        if option.kind is None and isinstance(value, bool):
            return value
        needed = f"a value, {option.metavar}" if option.kind else "true or false"
        raise ValueError(f"needs {needed}")
    if isinstance(value, list) and not all(isinstance(part, (str, int)) for part in value):
        raise ValueError("write texts in quotes, or numbers")
    if option.kind is kinds.VARIABLES and isinstance(value, dict):
        return tuple(_read_variables(value))
    if not isinstance(value, (str, int, float, list)):
        raise ValueError("write a text in quotes, a number or a list of them")
    return option.read([value] if option.repeats and not isinstance(value, list) else value)


def _read_variables(table: dict[str, Any]) -> Iterator[str]:
    for name, value in table.items():
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            raise ValueError(f"{name}: write a text in quotes, or a number")
        yield f"{name}={value}"


def _suggest_key(key: str) -> str:
    """Return "; did you mean ...?" with the option that a wrong key may mean; "" if none."""
    keys: dict[str, str] = {}
    for name, option in Options.declared.items():
        long = option.long.removeprefix("--")
        spellings = (name, option.keyword, *(short.lstrip("-") for short in option.short))
        keys |= dict.fromkeys((long, *filter(None, spellings)), long)
    if key not in keys:
        import difflib

        key = next(iter(difflib.get_close_matches(key, keys, 1)), "")
    return f"; did you mean {keys[key]}?" if key else ""

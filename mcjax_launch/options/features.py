"""The modules `options` of the folders in `features/`: what features declare in the launcher.

Such a module has an OptionGroup, and functions for a job that is made, as far as it needs them:

- `is_used(job)` returns whether its part of the launcher must exist before the ranks start.
- `is_in_ranks(job)` returns whether each rank has its hook, which any job may come to need.
- `comes_first(job)` returns whether its step comes before hosts are prepared, and may change them.
- `find_choice(options)` returns an object that chooses the ranks that run, or None for all:
  see `request/ready.py`.
- `refuse(options)` refuses options that can never be combined.
- `complete(job, where)` returns the job with what the feature derives from options.
- `describe(job)` yields lines for --dry-run.
- `begin(job, hosts, front)` prepares the launcher's process (`launcher/front.py`) for the job.
- `acts(options)` returns whether the feature acts in place of the command's usual run: then
  `act(line)` of its module `command` does (see `request/command_line.py`).
- `list_irrelevant(options)` names options that a project's file does not mean for such a command.
- `warn(options)` yields lines on likely mistakes.
- `ADVISED` is advice, and options of other launchers that get it; `COMMANDS` the same for words in
  PROGRAM's place; `EXAMPLE` is a line of -h, and `REMINDER` a sentence there.
- `advise(job, outcome, words)` yields hints after a failed job; `words` are those of the launcher.
- `make_readers(job, words, say, has_client=...)` yields readers of the journal for a run.

Without a feature's folder its options are unknown, and code outside of it reads them as not given.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from importlib.machinery import SourceFileLoader
from types import ModuleType
from typing import Any, NamedTuple, TypeVar

from mcjax_launch.options.option import OptionGroup

J = TypeVar("J")

_FOLDER = os.path.join(os.path.dirname(os.path.dirname(__file__)), "features")


@cache
def load_all() -> Mapping[str, ModuleType]:
    """Return the module of each feature that has one, by the feature's name."""
    paths = {name: os.path.join(_FOLDER, name, "options.py") for name in os.listdir(_FOLDER)}
    return {
        name: _load(f"mcjax_launch.features.{name}.options", path)
        for name, path in sorted(paths.items())
        if os.path.exists(path)
    }


def _load(name: str, path: str) -> ModuleType:
    """Import a module without its package: each start would wait twice as long for both."""
    module = sys.modules[name] = ModuleType(name)
    module.__file__, module.__package__ = path, name.rpartition(".")[0]
    code: Any = SourceFileLoader(name, path).get_code(name)
    exec(code, vars(module))
    return module


@cache
def load(module: str) -> Any:
    """Return a module such as "causes", of the one feature that has it; None if none has."""
    first = module.partition(".")[0]
    for name in sorted(os.listdir(_FOLDER)):
        path = os.path.join(_FOLDER, name, first)
        if os.path.exists(f"{path}.py") or os.path.isdir(path):
            return import_module(f"mcjax_launch.features.{name}.{module}")
    return None


def list_groups() -> tuple[type[OptionGroup], ...]:
    """Return the option groups of all features."""
    names = {module.__name__ for module in load_all().values()}
    return tuple(each for each in OptionGroup.__subclasses__() if each.__module__ in names)


def get(options: object, name: str) -> Any:
    """Return an option of a feature; None also if this copy lacks the feature."""
    return getattr(options, name, None)


def list_used(job: object) -> list[str]:
    """Return the names of features whose launcher part must exist before the ranks start."""
    return list(_ask("is_used", job))


def list_in_ranks(job: object) -> list[str]:
    """Return the names of features whose hook each rank has."""
    return list(_ask("is_in_ranks", job))


def list_for_hosts(job: object) -> set[str]:
    """Return the names of features whose code hosts need."""
    return {*list_in_ranks(job), *list_used(job)}


def find_first(job: object) -> str | None:
    """Return the name of the feature whose step comes before hosts are prepared; None for none."""
    return next(iter(_ask("comes_first", job)), None)


def load_act(options: object) -> Any:
    """Return the function that acts in place of the command's usual run; None for none."""
    for name in _ask("acts", options):
        return import_module(f"mcjax_launch.features.{name}.command").act
    return None


def find_choice(options: object) -> Any:
    """Return what chooses the ranks that run; None if all run."""
    return next(iter(_ask("find_choice", options).values()), None)


def _ask(name: str, options: object) -> dict[str, Any]:
    """Return the answers of features' functions of this name that are true, by the feature."""
    functions = {feature: getattr(module, name, None) for feature, module in load_all().items()}
    return {feature: found for feature, own in functions.items() if own and (found := own(options))}


class Where(NamedTuple):
    """The place where a job is to run.

    Args:
        hosts: hosts that get ranks.
        environ: variables of this process.
        note: called with each line to print.
        say: called with each line to print for --verbose; None to print none.

    """

    hosts: Sequence[Any]
    environ: Mapping[str, str]
    note: Callable[[str], object]
    say: Callable[[str], object] | None


def complete(job: J, where: Where) -> J:
    """Return a job with what features derive from their options.

    Raises:
        LaunchError: an option of a feature cannot be had in this job.

    """
    for own in list_all("complete"):
        job = own(job, where)
    return job


def refuse(options: object) -> None:
    """Refuse options of features that can never be combined with others.

    Raises:
        LaunchError: there are such options.

    """
    for own in list_all("refuse"):
        own(options)


def begin(job: object, hosts: Sequence[Any], front: object) -> None:
    """Prepare the launcher's process for a job.

    Raises:
        LaunchError: a feature's files cannot be made.

    """
    for own in list_all("begin"):
        own(job, hosts, front)


def describe(job: object) -> Iterator[str]:
    """Yield lines for --dry-run."""
    for own in list_all("describe"):
        yield from own(job)


def list_irrelevant(options: object) -> Iterator[str]:
    """Yield the names of options that a project's file does not mean for a command line."""
    for own in list_all("list_irrelevant"):
        yield from own(options)


def warn(options: object) -> Iterator[str]:
    """Yield lines on likely mistakes in options of features."""
    for own in list_all("warn"):
        yield from own(options)


def advise(job: object, outcome: object, words: Sequence[str]) -> Iterator[str]:
    """Yield hints of features after a failed job."""
    for own in list_all("advise"):
        yield from own(job, outcome, words)


def make_readers(
    job: object, words: Callable[[], Sequence[str]], say: Callable[[str], object], has_client: bool
) -> Iterator[object]:
    """Yield readers of the journal for a run of a job.

    Args:
        job: the job.
        words: returns the words of the command line.
        say: prints a line of the launcher.
        has_client: True if a program has started the command.

    """
    for own in list_all("make_readers"):
        yield from own(job, words, say, has_client=has_client)


def list_all(name: str) -> list[Any]:
    """Return what the modules have under a name, such as "ADVISED"."""
    return [getattr(module, name) for module in load_all().values() if hasattr(module, name)]

"""The modules `options` of the folders in `features/`: what features declare in the launcher.

Such a module has an OptionGroup, and of these functions and constants those that it needs. First
come those on a command line:

- `acts(options)` returns whether the feature acts in place of the command's usual run: then
  `act(line)` of its module `command` does (see `cli/command_line.py`).
- `list_irrelevant(options)` names options that a project's file does not mean for such a command.
- `refuse(options)` refuses options that can never be combined, as far as `excludes` and `needs` of
  a declaration cannot say it.
- `warn(options)` yields lines on likely mistakes.
- `ADVISED` is advice, and options of other launchers that get it; `COMMANDS` the same for words in
  PROGRAM's place; `EXAMPLE` is a line of -h, and `REMINDER` a sentence there.

Then those on a job:

- `find_choice(options)` returns an object that chooses the ranks that run, or None for all:
  see `request/ready.py`.
- `complete(job, where)` returns the job with what the feature derives from options.
- `describe(job)` yields lines for --dry-run.
- `make_readers(job, words, say, has_client)` yields readers of the journal for all attempts:
  `words` returns the words of the command line, `say` prints a line of the launcher, and
  `has_client` is True if a program has started the command.
- `begin(job, hosts, front)` prepares the launcher's process (`launcher/front.py`).
- `comes_first(job)` returns whether its step comes before hosts are prepared, and may change them.
- `is_used(job)` returns whether its part of the launcher must exist before the ranks start.
- `is_in_ranks(job)` returns whether each rank has its hook, which any job may come to need.
- `advise(job, outcome, words)` yields hints after a failed job; `words` are those of the launcher.

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


def change(job: J, **options: object) -> J:
    """Return a job with options of features changed, of those features that this copy has."""
    known: Any = job
    changed: J = known.copy_with(
        **{name: options[name] for name in options if name in known._fields}
    )
    return changed


def list_for_hosts(job: object) -> set[str]:
    """Return the names of features whose code hosts need."""
    return {*call("is_in_ranks", job), *call("is_used", job)}


def find_first(job: object) -> str | None:
    """Return the name of the feature whose step comes before hosts are prepared; None for none."""
    return next(iter(call("comes_first", job)), None)


def load_act(options: object) -> Any:
    """Return the function that acts in place of the command's usual run; None for none."""
    for name in call("acts", options):
        return import_module(f"mcjax_launch.features.{name}.command").act
    return None


def find_choice(options: object) -> Any:
    """Return what chooses the ranks that run; None if all run."""
    return next(iter(call("find_choice", options).values()), None)


def call(name: str, *args: Any) -> dict[str, Any]:
    """Call features' functions of this name; return the answers that are true, by feature.

    Raises:
        LaunchError: a function refuses what it is asked.

    """
    functions = {feature: getattr(module, name, None) for feature, module in load_all().items()}
    return {feature: found for feature, own in functions.items() if own and (found := own(*args))}


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


def collect(name: str, *args: Any) -> Iterator[Any]:
    """Yield what features' functions of this name yield, such as lines."""
    for own in list_all(name):
        yield from own(*args)


def list_all(name: str) -> list[Any]:
    """Return what the modules have under a name, such as "ADVISED"."""
    return [getattr(module, name) for module in load_all().values() if hasattr(module, name)]

"""The modules `options` of the folders in `features/`: what features declare in the launcher.

Such a module has an OptionGroup, and functions for a job that is made, as far as it needs them:

- `is_used(job)` returns whether its part of the launcher must exist before the ranks start.
- `check(options)` refuses options that can never be combined.
- `complete(job, where)` returns the job with what the feature derives from options.
- `describe(job)` yields lines for --dry-run.

Without a feature's folder its options are unknown, and code outside of it reads them as not given.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
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


def list_groups() -> tuple[type[OptionGroup], ...]:
    """Return the option groups of all features."""
    names = {module.__name__ for module in load_all().values()}
    return tuple(each for each in OptionGroup.__subclasses__() if each.__module__ in names)


def get(options: object, name: str) -> Any:
    """Return an option of a feature; None also if this copy lacks the feature."""
    return getattr(options, name, None)


def find_used(name: str, options: object) -> Any:
    """Return the module of a feature if the options ask for it; else None."""
    module: Any = load_all().get(name)
    return module if hasattr(module, "is_used") and module.is_used(options) else None


def list_used(job: object) -> list[str]:
    """Return the names of features whose launcher part must exist before the ranks start."""
    return [name for name in load_all() if find_used(name, job)]


class Where(NamedTuple):
    """The place where a job is to run.

    Args:
        hosts: hosts that get ranks.
        environ: variables of this process.
        say: called with each line to print for --verbose; None to print none.

    """

    hosts: Sequence[Any]
    environ: Mapping[str, str]
    say: Callable[[str], object] | None


def complete(job: J, where: Where) -> J:
    """Return a job with what features derive from their options.

    Raises:
        LaunchError: an option of a feature cannot be had in this job.

    """
    for own in _list_functions("complete"):
        job = own(job, where)
    return job


def check(options: object) -> None:
    """Refuse options of features that can never be combined with others.

    Raises:
        LaunchError: there are such options.

    """
    for own in _list_functions("check"):
        own(options)


def describe(job: object) -> Iterator[str]:
    """Yield lines for --dry-run."""
    for own in _list_functions("describe"):
        yield from own(job)


def _list_functions(name: str) -> list[Callable[..., Any]]:
    return [getattr(module, name) for module in load_all().values() if hasattr(module, name)]

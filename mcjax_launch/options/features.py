"""The modules `options` of the folders in `features/`: what features declare in the launcher.

Such a module has an option group, `GROUP`, and functions for a job that is being made, as far as
the feature needs them:

- `is_used(job)` returns whether its part of the launcher must exist before the ranks start.
- `check(options)` refuses options that can never be combined.
- `complete(job, hosts, environ, say)` returns the job with what the feature derives from options.
- `describe(job)` yields lines for --dry-run.

Without a feature's folder its options are unknown, and code outside of it reads them as not given.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, TypeVar

J = TypeVar("J")

_PACKAGE = "mcjax_launch.features"
_FOLDER = os.path.join(os.path.dirname(os.path.dirname(__file__)), "features")
_MODULES: dict[str, Any] = {}


def load_all() -> Mapping[str, Any]:
    """Return the module of each feature that has one, by the feature's name."""
    if not _MODULES:
        for name in sorted(os.listdir(_FOLDER)):
            if os.path.exists(os.path.join(_FOLDER, name, "options.py")):
                _MODULES[name] = import_module(f"{_PACKAGE}.{name}.options")
    return _MODULES


def list_groups() -> tuple[Any, ...]:
    """Return the option groups of all features."""
    return tuple(module.GROUP for module in load_all().values())


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


def complete(
    job: J,
    hosts: Sequence[Any],
    environ: Mapping[str, str],
    say: Callable[[str], object] | None,
) -> J:
    """Return a job with what features derive from their options.

    Args:
        job: job with the options as they were given.
        hosts: hosts that get ranks.
        environ: variables of this process.
        say: called with each line to print for --verbose; None to print none.

    Raises:
        LaunchError: an option of a feature cannot be had in this job.

    """
    for own in _list_functions("complete"):
        job = own(job, hosts, environ, say)
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

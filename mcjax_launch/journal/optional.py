"""The rooms that only read the journal, loaded by name: the core runs without their folders.

`explain/` says why things happen, `report/` writes what has happened to files, and `python/` starts
the command from Python. Code that calls into one of them has an answer of its own for its absence.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

from mcjax_launch.errors import LaunchError

_PACKAGE = os.path.dirname(os.path.dirname(__file__))


def load(module: str) -> Any:
    """Return a module such as "explain.rules"; None if this copy has no such folder."""
    folder = module.partition(".")[0]
    if not os.path.isdir(os.path.join(_PACKAGE, folder)):
        return None
    return import_module(f"mcjax_launch.{module}")


def load_for(option: str, module: str) -> Any:
    """Return the module of an option that needs it.

    Raises:
        LaunchError: this copy has no such folder.

    """
    if (found := load(module)) is None:
        folder = module.partition(".")[0]
        raise LaunchError(f"{option}: this copy of mcjax-launch lacks its folder {folder}/")
    return found

"""The files of what has been imported, and whether they are as they were."""

from __future__ import annotations

import os
import sys


class ImportedFiles:
    """Those of all modules that are there; Python too goes by a file's time and size."""

    def __init__(self) -> None:
        self._states = {path: _state_of(path) for path in _paths()}

    def have_changed(self) -> bool:
        """Whether any of them is another now."""
        return any(_state_of(path) != state for path, state in self._states.items())


def _paths() -> set[str]:
    return {path for path in map(file_of, list(sys.modules.values())) if path}


def file_of(module: object) -> str:
    """The file that a module was loaded from; "" if there is none."""
    try:
        # Not by way of a module's own lookup, which may import what has been put off.
        path = object.__getattribute__(module, "__dict__").get("__file__")
    except AttributeError:
        return ""
    return path if isinstance(path, str) else ""


def _state_of(path: str) -> tuple[int, int] | None:
    """When it was written, and its size; None if there is no such file."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):  # some modules name one that never was
        return None
    return found.st_mtime_ns, found.st_size

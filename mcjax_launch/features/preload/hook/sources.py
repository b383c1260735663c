"""Source files of imported modules, to find out whether any has been changed."""

from __future__ import annotations

import os
import sys


class Sources:
    """Record of the files of all modules, as they are at its creation."""

    def __init__(self) -> None:
        paths = map(get_file, list(sys.modules.values()))
        self._states = {path: _read_state(path) for path in paths if path}

    def find_change(self) -> str:
        """Return a text that names a changed file; "" if no file has changed."""
        for path, state in self._states.items():
            if _read_state(path) != state:
                return f"{path} has changed"
        return ""


def _read_state(path: str) -> tuple[int, ...]:
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return found.st_mtime_ns, found.st_size, found.st_ino


def get_file(module: object) -> str:
    """Return the file from which a module was loaded; "" if there is none."""
    try:
        # Not by way of a module's own lookup, which may import what has been put off.
        path = object.__getattribute__(module, "__dict__").get("__file__")
    except AttributeError:
        return ""
    return path if isinstance(path, str) else ""

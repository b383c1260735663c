"""Keeps a program's own modules from being run in the place of a library that is imported."""

from __future__ import annotations

import sys

from .forking import Unfit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from typing import Any


class OwnModules:
    """A `with` around imports, in which none of the program's own folder is imported.

    A file `random.py` or `jax.py` there would be, with all that it does: for each rank, not once.

    Args:
        folder: which Python has put in front of sys.path; None to allow all.

    """

    def __init__(self, folder: str | None) -> None:
        self._folder = folder
        self._found = ""

    def __enter__(self) -> OwnModules:
        if self._folder is not None:
            sys.meta_path.insert(0, self)
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        if self._found:
            raise self._unfit

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Refuse a top-level module that is there; others are found as ever."""
        import _frozen_importlib_external as importing

        finder: Any = importing.PathFinder
        spec = finder.find_spec(name, [self._folder]) if path is None else None
        if spec is not None and spec.loader is not None:
            self._found = spec.origin or name
            raise self._unfit
        return None

    @property
    def _unfit(self) -> Unfit:
        return Unfit(f"{self._found} would be imported in the place of a library's module")

"""Which packages import which, recorded while they are imported."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from types import FrameType
    from typing import Any

_NO_FILE = "<"  # as the name of what Python's own imports are compiled from, or a library's string


class ImportGraph:
    """A `with` in which each import is recorded, that of a module already loaded too.

    Args:
        ran: called with a package whenever its modules have run a while: it begins or ends an
            import of another one.

    """

    def __init__(self, ran: Callable[[str], object]) -> None:
        self._ran = ran
        self._edges: dict[str, set[str]] = {}
        self._before: set[str] = set()
        self._patches: list[tuple[Any, str, Any, Any]] = []  # where, its name, what was there, ours

    def __enter__(self) -> ImportGraph:
        import _frozen_importlib as importing
        import builtins

        self._before = {package_of(name) for name in sys.modules}
        statement = builtins.__import__
        function: Any = vars(importing)["_gcd_import"]  # which importlib.import_module calls

        def import_statement(  # with the names that callers may give them
            name: str,
            globals: Any = None,  # noqa: A002
            locals: Any = None,  # noqa: A002
            fromlist: Sequence[str] = (),
            level: int = 0,
        ) -> object:
            crosses = not level and self._record(name)
            module = statement(name, globals, locals, fromlist, level)
            if crosses:
                self._ran(package_of(name))
            return module

        def import_function(name: str, package: Any = None, level: int = 0) -> object:
            crosses = not level and self._record(name)
            module = function(name, package, level)
            if crosses:
                self._ran(package_of(name))
            return module

        self._patches = [
            (builtins, "__import__", statement, _unseen(import_statement)),
            (importing, "_gcd_import", function, _unseen(import_function)),
        ]
        for module, name, _, ours in self._patches:
            setattr(module, name, ours)
        return self

    def __exit__(self, *exception: object) -> None:
        for module, name, real, ours in self._patches:
            if getattr(module, name) is ours:  # no import has put something else there
                setattr(module, name, real)

    def reach(self, roots: Collection[str]) -> set[str]:
        """These packages, and all that their imports have imported.

        Args:
            roots: names of packages.

        """
        found: set[str] = set()
        rest = set(roots)
        while rest:
            package = rest.pop()
            found.add(package)
            rest |= self._edges.get(package, set()) - found
        return found

    def loaded_for(self, roots: Collection[str]) -> set[str]:
        """The packages that were loaded for these, the standard library's too."""
        return {name for name in self.reach(roots) - self._before if name in sys.modules}

    def _record(self, name: str) -> bool:
        """Record that the module whose body is executed imports this; whether across packages."""
        importer, imported = package_of(executing_module()[0]), package_of(name)
        if importer == imported:
            return False
        self._edges.setdefault(importer, set()).add(imported)
        self._ran(importer)
        return True


def package_of(module: str) -> str:
    """The top-level package of a module."""
    return module.partition(".")[0]


def executing_module() -> tuple[str, int]:
    """The module whose body is being executed, the innermost one, and the line it has come to."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_name != "<module>":
        frame = frame.f_back
    if frame is None:  # a thread's
        return "", 0
    return str(frame.f_globals.get("__name__", "")), frame.f_lineno


def calling_module() -> str:
    """The module whose code has called what calls this; of a library in C, that which loads it."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename.startswith(_NO_FILE):
        frame = frame.f_back
    return "" if frame is None else str(frame.f_globals.get("__name__", ""))


def _unseen(function: Callable[..., object]) -> Any:
    """Have warnings pass over its frames, to the line that imports, as over Python's own."""
    code = function.__code__
    function.__code__ = code.replace(co_filename="<frozen importlib._bootstrap>")
    return function

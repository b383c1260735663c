"""Packages that have been imported before the program has: out of sight until it imports them.

So a forked rank knows when its program imports JAX, and so does who looks into sys.modules.
"""

from __future__ import annotations

import sys

from .import_graph import package_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

    from .import_graph import ImportGraph


class UnseenModules:
    """A finder that has the modules of packages, and shows them when they are first imported.

    With a package come those that its own import has imported. It leaves with the last of them.

    Args:
        packages: to put out of sight.
        graph: which of them import which.
        first_imported: called with the name of one that the program imports, and with all that
            come into sight with it. What it raises comes out of that import, as if that had
            failed.

    """

    def __init__(
        self,
        packages: Collection[str],
        graph: ImportGraph,
        first_imported: Callable[[str, Collection[str]], object],
    ) -> None:
        self._graph = graph
        self._first_imported = first_imported
        named = {name for name in packages if _spec_of(sys.modules[name]) is not None}
        self._modules: dict[str, dict[str, ModuleType]] = {name: {} for name in named}
        for name in list(sys.modules):
            if package_of(name) in named:
                self._modules[package_of(name)][name] = sys.modules.pop(name)
        if named:
            sys.meta_path.insert(0, self)

    def find_spec(self, name: str, *_: Sequence[str] | ModuleType | None) -> ModuleSpec | None:
        """The spec of a package; Python imports that before any other module of it."""
        if name not in self._modules:
            return None
        shown = {one: self._modules[one] for one in self._graph.reach([name]) & {*self._modules}}
        for modules in shown.values():
            sys.modules.update(modules)
        try:
            self._first_imported(name, shown)
        except BaseException:
            for modules in shown.values():
                for module in modules:
                    sys.modules.pop(module, None)
            raise
        for package in shown:  # only now: another thread may import it meanwhile
            self._modules.pop(package, None)
        if not self._modules and self in sys.meta_path:
            sys.meta_path.remove(self)
        return _as_it_is(sys.modules[name])


def _spec_of(module: ModuleType) -> ModuleSpec | None:
    """With a loader that is an object; that of another module cannot give it as it is."""
    spec: ModuleSpec | None = getattr(module, "__spec__", None)
    return spec if spec is not None and not isinstance(spec.loader, (type, type(None))) else None


def _as_it_is(module: ModuleType) -> ModuleSpec:
    """The spec of a module that is loaded already, which gives just that."""
    spec = _spec_of(module)
    assert spec is not None
    loader: Any = spec.loader

    def create_module(_: ModuleSpec) -> ModuleType:
        del loader.create_module  # which leaves the loader as it was
        return module

    def exec_module(_: ModuleType) -> None:
        del loader.exec_module

    loader.create_module, loader.exec_module = create_module, exec_module
    return spec

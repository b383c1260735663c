"""Modules that are loaded, but hidden until the program imports them."""

from __future__ import annotations

import sys

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any, Protocol

    class HiddenLayer(Protocol):
        """Packages that are hidden together; see `layers.Layer`."""

        name: str
        packages: set[str]
        uses: set[str]


class HiddenModules:
    """Import finder that hides the packages of layers until the program imports them.

    The package that names a layer shows the whole layer, and the packages that it uses. Each of
    the other packages is shown alone or, if it uses JAX, with its whole layer.

    The finder removes itself from sys.meta_path after the last package.

    Args:
        layers: layers to hide.
        on_import: called with the packages that are about to be shown.
        on_shown: called with the packages that have been shown.

    """

    def __init__(
        self,
        layers: Iterable[HiddenLayer],
        on_import: Callable[[Collection[str]], object],
        on_shown: Callable[[Collection[str]], object] = len,
    ) -> None:
        self._on_import = on_import
        self._on_shown = on_shown
        self._hidden = {package: layer for layer in layers for package in layer.packages}
        # In the order in which they were loaded, which shows in sys.modules.
        self._modules = self._select_modules(self._hidden, sys.modules)
        for name in self._modules:
            del sys.modules[name]
        if self._hidden:
            sys.meta_path.insert(0, self)

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        """Put a hidden package, and the packages shown with it, back into sys.modules.

        Returns:
            the package's spec; None if the package is not hidden.

        """
        if name not in self._hidden:
            return None
        layer = self._hidden[name]
        packages = {name}
        if name == layer.name or self._uses_jax(name):
            packages = (layer.packages | layer.uses) & self._hidden.keys()
        self._on_import(packages)
        self._show(packages)
        self._on_shown(packages)
        return _make_unchanged_spec(sys.modules[name])

    def show_all(self) -> None:
        """Show all packages that are still hidden."""
        self._show([*self._hidden])

    def _show(self, packages: Collection[str]) -> None:
        sys.modules.update(self._select_modules(packages, self._modules))
        for package in packages:  # only now: another thread may import it meanwhile
            del self._hidden[package]
        if not self._hidden and self in sys.meta_path:
            sys.meta_path.remove(self)

    @staticmethod
    def _select_modules(
        packages: Collection[str], modules: Mapping[str, ModuleType]
    ) -> dict[str, ModuleType]:
        return {name: modules[name] for name in [*modules] if get_package(name) in packages}

    def _uses_jax(self, package: str) -> bool:
        return any(
            type(value) is type(sys) and get_package(value.__name__) == "jax"
            for module in self._select_modules({package}, self._modules).values()
            for value in [*object.__getattribute__(module, "__dict__").values()]
        )


def get_package(module: str) -> str:
    """Return the top-level package of a module."""
    return module.partition(".")[0]


def _make_unchanged_spec(module: ModuleType) -> ModuleSpec:
    """Return a spec for a loaded module, whose import returns that module unchanged."""
    spec: Any = module.__spec__
    loader: Any = spec.loader

    def create_module(_: ModuleSpec) -> ModuleType:
        del loader.create_module  # which leaves the loader as it was
        return module

    def exec_module(_: ModuleType) -> None:
        del loader.exec_module

    loader.create_module, loader.exec_module = create_module, exec_module
    return spec  # type: ignore[no-any-return]

"""A jax that has been imported before the program has: out of sight until the program imports it.

So a forked rank knows whether its program uses JAX, and so does who looks into sys.modules.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any


class UnseenJax:
    """A finder that has jax and its public modules, and leaves with the first import of jax.

    Args:
        imported: called at that import.

    """

    def __init__(self, imported: Callable[[], object]) -> None:
        self._imported = imported
        names = [name for name in sys.modules if name == "jax" or name.startswith("jax.")]
        public = [name for name in names if not name.startswith("jax._")]
        self._modules = {name: sys.modules.pop(name) for name in public}

    def find_spec(self, name: str, *_: Sequence[str] | ModuleType | None) -> ModuleSpec | None:
        """The spec of jax; Python imports that before any other module of it."""
        if name != "jax":
            return None
        sys.meta_path.remove(self)
        sys.modules.update(self._modules)
        module = self._modules["jax"]
        self._imported()
        return _as_it_is(module)


def _as_it_is(module: ModuleType) -> ModuleSpec:
    """The spec of a module that is loaded already, which gives just that."""
    spec = module.__spec__
    assert spec is not None
    loader: Any = spec.loader

    def create_module(_: ModuleSpec) -> ModuleType:
        del loader.create_module  # which leaves the loader as it was
        return module

    def exec_module(_: ModuleType) -> None:
        del loader.exec_module

    loader.create_module, loader.exec_module = create_module, exec_module
    return spec


def hide(imported: Callable[[], object]) -> None:
    """Put jax out of sight; if it is not there, it is not imported either."""
    if "jax" in sys.modules:
        sys.meta_path.insert(0, UnseenJax(imported))

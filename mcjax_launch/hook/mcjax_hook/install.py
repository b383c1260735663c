"""The way in: connects to the agent, and patches modules when the program imports them.

It never imports jax itself, and imports nothing at start that costs time: `site` runs it before
every program, JAX's or not.
"""

from __future__ import annotations

import os
import sys

from ...protocol import hook_environ
from .agent_link import AgentLink
from .exits import Exits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

    from .compilation import Compilation

    Patch = Callable[[Any], None]


def install(failed: Callable[[Exception], None]) -> None:
    """Put the hook in place; without an agent do nothing, or fill in initialize() alone.

    Args:
        failed: is given what goes wrong in the hook later on, which the program does not see.

    """
    path = os.environ.get(hook_environ.SOCKET)
    environ = dict(os.environ)  # as it is: the program may change or clear its own
    if not path:
        if environ.get(hook_environ.ALONE):
            sys.meta_path.insert(0, ImportPatches({"jax.distributed": _fills_in(environ)}, failed))
        return
    try:
        link = AgentLink(path, environ.get("JAX_PROCESS_ID", ""))
    except OSError:
        return
    Hook(link, environ).install(failed)


def _fills_in(environ: Mapping[str, str]) -> Patch:
    def patch(distributed: Any) -> None:
        from .alone import fill_in_initialize

        fill_in_initialize(distributed, environ)

    return patch


class Hook:
    """Brings the hook's parts together, those for JAX when the program imports it."""

    def __init__(self, link: AgentLink, environ: Mapping[str, str]) -> None:
        self._link = link
        self._environ = environ
        self._exits = Exits(link)
        self._made: Compilation | None = None

    def install(self, failed: Callable[[Exception], None]) -> None:
        """See every way out of the program, and the imports of what is to be patched."""
        self._exits.install()
        patches: dict[str, Patch] = {
            "threading": self._exits.patch_threading,
            "jax.distributed": self._patch_distributed,
            "jax._src.compiler": lambda module: self._compilation.patch_compiler(module),
            "jax._src.interpreters.pxla": lambda module: self._compilation.patch_execution(module),
        }
        sys.meta_path.insert(0, ImportPatches(patches, failed))

    @property
    def _compilation(self) -> Compilation:
        if self._made is None:
            from .compilation import Compilation

            self._made = Compilation(self._link, self._environ)
        return self._made

    def _patch_distributed(self, distributed: Any) -> None:
        from .initialize import Initialization

        Initialization(self._link, self._environ, self._exits, self._compilation).patch(distributed)


class ImportPatches:
    """A finder that finds only modules that are to be patched, which is done once they are loaded.

    Args:
        patches: by the names of the modules.
        failed: is given what a patch raises.

    """

    def __init__(self, patches: dict[str, Patch], failed: Callable[[Exception], None]) -> None:
        self._patches = patches
        self._failed = failed

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of a module to be patched, from the first other finder that has one."""
        if name not in self._patches:
            return None
        patch = self._patches.pop(name)
        for finder in sys.meta_path:
            spec = finder.find_spec(name, path, target) if finder is not self else None
            if spec is not None:
                self._patch_when_loaded(spec.loader, patch)
                return spec
        return None

    def _patch_when_loaded(self, loader: Any, patch: Patch) -> None:
        load = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            load(module)
            try:
                patch(module)
            except Exception as error:  # the program comes first: it imports what it wants
                self._failed(error)

        loader.exec_module = exec_module

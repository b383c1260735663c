"""The way in: connects to the agent, and patches modules when the program imports them.

It never imports jax itself, and imports nothing at start that costs time: `site` runs it before
every program, JAX's or not.
"""

from __future__ import annotations

import os
import sys

from ... import features
from ..wire import hook_environ
from . import exits
from .agent_link import AgentLink
from .below import is_below
from .exits import Exits
from .part import Parts, module_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any, Protocol

    from .compilation import Compilation

    Patch = Callable[[Any], None]

    class Instead(Protocol):
        """What a feature has a process do in the place of the program."""

        def run(self, step_aside: Callable[[], object]) -> None: ...


def install(failed: Callable[[Exception], None]) -> Instead | None:
    """Put the hook in place; without an agent do nothing.

    Args:
        failed: is given what goes wrong in the hook later on, which the program does not see.

    Returns:
        what this process is there for, if that is not the program.

    """
    path = os.environ.get(hook_environ.SOCKET)
    feature, _, order = os.environ.pop(hook_environ.INSTEAD, "").partition(":")
    environ = dict(os.environ)  # as it is: the program may change or clear its own
    if not path:
        return None
    if not _is_main_interpreter():
        return None
    if "_gdb" in sys.builtin_module_names:  # no program of the rank's: gdb's own Python
        return None
    link = AgentLink()
    if not feature:
        try:
            link.connect(path, environ.get("JAX_PROCESS_ID", ""))
        except OSError:
            return None
        link.is_below = is_below(environ)
    Hook(link, environ, failed).install()
    if not feature:
        return None
    instead: Instead = module_of(feature).INSTEAD(order, link, environ)
    return instead


def _is_main_interpreter() -> bool:
    """Whether this is not one of several in a process, each of which runs `site`."""
    import _thread

    is_main = getattr(_thread, "_is_main_interpreter", None)
    return bool(is_main()) if is_main is not None else not exits.is_watched()


class Hook:
    """Brings the hook's parts together, those for JAX when the program imports it.

    Args:
        link: to the agent.
        environ: the environment that the process was given.
        failed: is given what goes wrong in the hook later on.

    """

    def __init__(
        self, link: AgentLink, environ: Mapping[str, str], failed: Callable[[Exception], None]
    ) -> None:
        self._link = link
        self._environ = environ
        self._failed = failed
        self._parts = Parts(link, environ)
        self._exits = Exits(link, failed, self._parts)
        self._made: Compilation | None = None

    def install(self) -> None:
        """See every way out of the program, and the imports of what is to be patched."""
        os.environ.pop(hook_environ.PDB, None)  # it is not for programs that this one starts
        self._exits.install()
        patches: dict[str, Patch] = {
            "jax.distributed": self._patch_distributed,
            "jax._src.xla_bridge": self._patch_bridge,
            "jax._src.compiler": lambda module: self._compilation.patch_compiler(module),
            "jax._src.interpreters.pxla": lambda module: self._compilation.patch_execution(module),
            "unittest.result": lambda module: self._exits.tests.patch_unittest(module),
            "_pytest.config": lambda module: self._exits.tests.patch_pytest(module),
        }
        for name, feature in features.PATCHES.items():
            patches[name] = self._patch_of(feature)
        sys.meta_path.insert(0, ImportPatches(patches, self._failed))

    def _patch_of(self, feature: str) -> Patch:
        return lambda module: self._parts.part(feature).patch(module)

    @property
    def _compilation(self) -> Compilation:
        if self._made is None:
            from .compilation import Compilation

            self._made = Compilation(self._link, self._parts)
        return self._made

    def _patch_bridge(self, bridge: Any) -> None:
        from .devices import Backends

        Backends(self._link, lambda: self._exits.joined, self._environ).patch(bridge)

    def _patch_distributed(self, distributed: Any) -> None:
        from . import devices
        from .initialize import Initialization

        if self._link.is_of_this_process:  # a forked rank sees to that itself
            devices.assign_gpus(self._environ)
        parts = self._parts
        Initialization(self._link, self._environ, self._exits, self._compilation, parts).patch(
            distributed
        )


class ImportPatches:
    """A finder that finds only modules that are to be patched, which is done once they are loaded.

    It leaves sys.meta_path with the last of them.

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
        for finder in sys.meta_path:
            spec = finder.find_spec(name, path, target) if finder is not self else None
            if spec is not None:
                self._patch_when_loaded(name, spec.loader)
                return spec
        return None

    def _patch_when_loaded(self, name: str, loader: Any) -> None:
        load = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            del loader.exec_module  # which leaves the loader as it was
            load(module)
            if module.__name__ == name:  # it may load others too
                self._patch(name, module)

        loader.exec_module = exec_module

    def _patch(self, name: str, module: ModuleType) -> None:
        patch = self._patches.pop(name, None)
        if patch is None:  # it is loaded again
            return
        if not self._patches and self in sys.meta_path:
            sys.meta_path.remove(self)
        try:
            patch(module)
        except Exception as error:  # the program comes first: it imports what it wants
            self._failed(error)

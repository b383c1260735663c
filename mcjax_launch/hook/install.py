"""Installation of the hook: connects to the agent, and patches modules when they are imported.

It never imports jax itself, and imports nothing slow, because `site` runs it before every program,
whether it uses JAX or not.
"""

from __future__ import annotations

import os
import sys

from .. import features
from ..wire import hook_environ
from . import exits
from .agent_link import AgentLink
from .below import is_below
from .exits import Exits
from .part import Parts, import_hook_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

    from .compilation import Compilation

    Patch = Callable[[Any], None]


def install(failed: Callable[[Exception], None]) -> Any:
    """Put the hook in place; do nothing without an agent.

    Args:
        failed: called with each later exception of the hook, which the program does not see.

    Returns:
        the task of a feature to run in place of the program, by its `run`; None to run the program.

    """
    path = os.environ.get(hook_environ.SOCKET)
    feature, _, order = os.environ.pop(hook_environ.RUN_INSTEAD, "").partition(":")
    environ = dict(os.environ)  # a copy: the program may change or clear os.environ
    if environ.get(hook_environ.SAFE_PATH) == hook_environ.OUR_SAFE_PATH:
        del os.environ[hook_environ.SAFE_PATH]
        if sys.version_info < (3, 11):  # not known there, and the first import after this
            import runpy  # noqa: F401
    if not path:
        return None
    if not _is_main_interpreter():
        return None
    if "_gdb" in sys.builtin_module_names:  # gdb's own Python, not a rank's program
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
    return import_hook_module(feature).RUN_INSTEAD(order, link, environ)


def _is_main_interpreter() -> bool:
    """Return whether this is the main interpreter; `site` also runs in subinterpreters."""
    import _thread

    is_main = getattr(_thread, "_is_main_interpreter", None)
    return bool(is_main()) if is_main is not None else not exits.is_watched()


class Hook:
    """Assembly of the hook's parts; the parts for JAX are made when the program imports JAX.

    Args:
        link: the link to the agent.
        environ: environment variables with which this process was started.
        failed: called with each later exception of the hook.

    """

    def __init__(
        self, link: AgentLink, environ: Mapping[str, str], failed: Callable[[Exception], None]
    ) -> None:
        self._link = link
        self._environ = environ
        self._failed = failed
        self._parts = Parts(link, environ)
        self._exits = Exits(link, failed, self._parts)
        self._known_compilation: Compilation | None = None

    def install(self) -> None:
        """Watch every way out of the program, and the imports of modules to patch."""
        for name in [name for name in os.environ if name.startswith(hook_environ.OWN)]:
            del os.environ[name]  # not for child processes
        self._exits.install()
        patches: dict[str, Patch] = {
            "jax.distributed": self._patch_distributed,
            "jax._src.xla_bridge": self._patch_bridge,
            "jax._src.compiler": lambda module: self._compilation.patch_compiler(module),
            "unittest.result": lambda module: self._exits.tests.patch_unittest(module),
            "_pytest.config": lambda module: self._exits.tests.patch_pytest(module),
        }
        for feature in hook_environ.list_requested_features(self._environ):
            for name in features.list_patched(feature):
                patches[name] = self._make_patch(feature)
        sys.meta_path.insert(0, ImportPatches(patches, self._failed))

    def _make_patch(self, feature: str) -> Patch:
        return lambda module: self._parts.get_part(feature).patch(module)

    @property
    def _compilation(self) -> Compilation:
        if self._known_compilation is None:
            from .compilation import Compilation

            self._known_compilation = Compilation(self._link, self._parts)
        return self._known_compilation

    def _patch_bridge(self, bridge: Any) -> None:
        from .devices import Backends

        Backends(self._link, lambda: self._exits.joined, self._environ).patch(bridge)

    def _patch_distributed(self, distributed: Any) -> None:
        from . import devices
        from .initialize import Initialization

        if self._link.is_of_this_process:  # a forked rank does it itself
            devices.assign_gpus(self._environ)
        Initialization(self._link, self._environ, self._exits, self._parts).patch(distributed)


class ImportPatches:
    """Import finder that finds only modules to patch, and patches them once they are loaded.

    It removes itself from sys.meta_path after the last patch.

    Args:
        patches: functions that patch a module, by the module's name.
        failed: called with an exception that a patch raises.

    """

    def __init__(self, patches: dict[str, Patch], failed: Callable[[Exception], None]) -> None:
        self._patches = patches
        self._failed = failed

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a module to patch, from the first other finder that has one."""
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
            del loader.exec_module  # restores the loader
            load(module)
            if module.__name__ == name:  # the loader may load other modules too
                self._patch(name, module)

        loader.exec_module = exec_module

    def _patch(self, name: str, module: ModuleType) -> None:
        patch = self._patches.pop(name, None)
        if patch is None:  # the module is loaded again
            return
        if not self._patches and self in sys.meta_path:
            sys.meta_path.remove(self)
        try:
            patch(module)
        except Exception as error:  # the program's import must not fail for the hook
            self._failed(error)

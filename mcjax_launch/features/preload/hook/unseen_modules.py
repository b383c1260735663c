"""Packages that were imported before the program began are hidden until it imports them.

So a forked rank knows when its program imports JAX, and so does who looks into sys.modules. By then
the program may have set variables or JAX's flags that the import has not seen. The flags are read
from the environment again; nothing else can be undone in a process that lives: the user is told.
"""

from __future__ import annotations

import sys

from ....kernel.hook import gpus
from ..messages import SetTooLate
from .import_graph import package_of
from .jax_flags import USED_BY_JAX

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

    from ....kernel.hook.agent_link import AgentLink
    from .environment_reads import EnvironmentReads
    from .import_graph import ImportGraph
    from .jax_flags import JaxFlags


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


class FirstImports:
    """Compares what the imports have used with what the program has set since.

    Args:
        reads: of variables.
        flags: of the jax that is imported, if it is.
        link: to the agent.
        environ: as this rank was given it.

    """

    def __init__(
        self, reads: EnvironmentReads, flags: JaxFlags, link: AgentLink, environ: Mapping[str, str]
    ) -> None:
        self._reads = reads
        self._flags = flags
        self._link = link
        self._environ = environ

    def take(self, imported: str, packages: Collection[str]) -> None:
        """The program imports a package, and with it others.

        Args:
            imported: the one that it names.
            packages: all of them.

        Raises:
            ValueError: a variable has a value that jax refuses.

        """
        changed = self._reads.changed(imported, packages)
        read_again = self._read_again({place for places in changed.values() for place in places})
        missed = self._flags.changed(packages)
        for name, places in changed.items():
            rest = places if name in USED_BY_JAX else places - read_again
            for module, _ in sorted(rest)[:1]:
                missed.setdefault(package_of(module), set()).add(name)
        for package, names in sorted(missed.items()):
            self._link.send(SetTooLate(package, tuple(sorted(names))))
        if "jax" in packages:
            self._link.send_held()
            gpus.assign(self._environ)

    def _read_again(self, places: Collection[tuple[str, int]]) -> set[tuple[str, int]]:
        """Set those of jax's flags that are defined in these places; where that was."""
        of_jax = {place for place in places if package_of(place[0]) == "jax"}
        try:
            return self._flags.read_again(of_jax) if of_jax else set()
        except ValueError:  # jax's own
            raise
        except Exception:  # a jax that defines its flags in another way
            return set()

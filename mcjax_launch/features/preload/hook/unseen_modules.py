"""What is recorded of imports before the program, whose packages are hidden until it needs them."""

from __future__ import annotations

import os
import sys

from ....kernel.hook import devices
from ..messages import SetTooLate
from .environment_reads import EnvironmentReads, are_in_c
from .fresh_start import working_folder
from .import_effects import ImportEffects
from .import_graph import ImportGraph, package_of
from .jax_flags import USED_BY_JAX, JaxFlags

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

    from ....kernel.hook.agent_link import AgentLink
    from .fresh_start import FreshStart

# --- what is recorded of imports ---


class Recording:
    """A `with` around the imports; around those before them, too, in which variables are read.

    Args:
        guesses: variables that the program is likely to set before its imports, with their values.
        in_c: gives the environment as C has it.

    """

    def __init__(self, guesses: Mapping[str, str], in_c: Callable[[], Mapping[str, str]]) -> None:
        self.reads = EnvironmentReads(guesses, in_c)
        self.flags = JaxFlags()
        self.effects = ImportEffects()
        self.graph = ImportGraph(self._ran)

    def __enter__(self) -> Recording:
        for part in (self.effects, self.graph, self.flags):
            part.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        for part in (self.flags, self.graph, self.effects):
            part.__exit__(*exception)

    def _ran(self, package: str) -> None:
        self.effects.ran(package)
        self.flags.imported(package)

    def packages(self, modules: Collection[str]) -> set[str]:
        """The packages that are to be hidden, of those that were imported for these modules."""
        loaded = self.graph.loaded_for([package_of(name) for name in modules])
        return {name for name in loaded if can_be_hidden(name)}


# --- hidden modules ---
# So a forked rank knows when its program imports JAX, and so does who looks into sys.modules. By
# then the program may have set variables or JAX's flags that the import has not seen. The flags are
# read from the environment again; nothing else can be undone in a process that lives. So the rank
# starts afresh, if nothing of it has been seen yet; otherwise the user is told.


class UnseenModules:
    """A finder that has the modules of packages, and shows them when they are first imported.

    With a package come those that its own import has imported. It leaves with the last of them.

    Args:
        packages: to put out of sight.
        path: where they were looked for, sys.path then.
        graph: which of them import which.
        first_imported: called with the name of one that the program imports, with all that come
            into sight with it, and with those of which another would be found now. What it raises
            comes out of that import, as if that had failed.

    """

    def __init__(
        self,
        packages: Collection[str],
        path: Sequence[str],
        graph: ImportGraph,
        first_imported: Callable[[str, Collection[str], Collection[str]], object],
    ) -> None:
        self._graph = graph
        self._first_imported = first_imported
        self._hidden = set(packages)
        # In the order in which they were loaded: it shows where all modules are listed.
        self._modules = {n: sys.modules[n] for n in [*sys.modules] if package_of(n) in packages}
        for name in self._modules:
            del sys.modules[name]
        self._path = path
        self._folder = working_folder()
        if packages:
            sys.meta_path.insert(0, self)

    def find_spec(self, name: str, *_: Sequence[str] | ModuleType | None) -> ModuleSpec | None:
        """The spec of a package; Python imports that before any other module of it."""
        if name not in self._hidden:
            return None
        shown = self._graph.reach([name]) & self._hidden
        others = self._others(shown)
        shown -= others
        self._hidden -= others
        modules = {n: one for n, one in self._modules.items() if package_of(n) in shown}
        sys.modules.update(modules)
        try:
            self._first_imported(name, shown, others)
        except BaseException:
            for module in modules:
                sys.modules.pop(module, None)
            raise
        self._hidden -= shown  # only now: another thread may import it meanwhile
        self._modules = {n: one for n, one in self._modules.items() if n not in modules}
        if not self._hidden and self in sys.meta_path:
            sys.meta_path.remove(self)
        return None if name in others else _as_it_is(sys.modules[name])

    def _others(self, packages: Collection[str]) -> set[str]:
        """Those that an import would find in another place, since the program has changed paths."""
        if sys.path[: len(self._path)] == self._path and working_folder() == self._folder:
            return set()
        finders = [finder for finder in sys.meta_path if finder is not self]
        return {one for one in packages if not _is_found(one, self._modules[one], finders)}


def can_be_hidden(name: str) -> bool:
    """Whether a module that is loaded can be given to who imports it later."""
    return _spec_of(sys.modules[name]) is not None


def _is_found(name: str, module: ModuleType, finders: Collection[Any]) -> bool:
    """Whether these find a top-level module where this one is from.

    Its own word on its name is another's for some: `_decimal` calls itself `decimal`.
    """
    origin: str | None = getattr(module.__spec__, "origin", None)
    specs = (finder.find_spec(name, None, None) for finder in finders)
    found: ModuleSpec | None = next((spec for spec in specs if spec is not None), None)
    # A finder of some build's own may name it otherwise, or not find it a second time.
    if found is None or origin is None or found.origin == origin:
        return True
    return os.path.realpath(str(found.origin)) == os.path.realpath(str(origin))


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
        recording: of the imports.
        link: to the agent.
        environ: as this rank was given it.
        fresh_start: of this rank.

    """

    def __init__(
        self,
        recording: Recording,
        link: AgentLink,
        environ: Mapping[str, str],
        fresh_start: FreshStart,
    ) -> None:
        self._reads = recording.reads
        self._flags = recording.flags
        self._effects = recording.effects
        self._link = link
        self._environ = environ
        self._fresh_start = fresh_start

    def take(self, imported: str, packages: Collection[str], others: Collection[str]) -> None:
        """The program imports a package, and with it others.

        Args:
            imported: the one that it names.
            packages: all of them.
            others: packages that are imported, of which the program would get another.

        Raises:
            ValueError: a variable has a value that jax refuses.

        """
        changed = self._reads.changed(imported, packages)
        read_again = self._read_again({place for places in changed.values() for place in places})
        missed = self._flags.changed(packages)
        missed.update((other, {"sys.path"}) for other in others)
        for package in self._effects.missed(packages):
            missed.setdefault(package, set()).add("its loggers")
        if self._fresh_start.cores_are_others() and are_in_c(packages):
            missed.setdefault(imported, set()).add("its cores")
        for name, places in changed.items():
            rest = places if name in USED_BY_JAX else places - read_again
            for module, _ in sorted(rest)[:1]:
                missed.setdefault(package_of(module), set()).add(name)
        if missed:
            self._tell({package: tuple(sorted(names)) for package, names in missed.items()})
        self._reads.redo(packages)
        self._effects.redo(packages)
        if "jax" in packages:
            self._link.send_held()
            devices.assign_gpus(self._environ)

    def _tell(self, missed: Mapping[str, tuple[str, ...]]) -> None:
        """Start afresh, or say what the imports have not seen."""
        afresh = self._fresh_start.is_possible()
        for package, names in sorted(missed.items()):
            self._link.send(SetTooLate(package, names, afresh))
        if afresh:
            self._fresh_start.go()

    def _read_again(self, places: Collection[tuple[str, int]]) -> set[tuple[str, int]]:
        """Set those of jax's flags that are defined in these places; where that was."""
        of_jax = {place for place in places if package_of(place[0]) == "jax"}
        try:
            return self._flags.read_again(of_jax) if of_jax else set()
        except ValueError:  # jax's own
            raise
        except Exception:  # a jax that defines its flags in another way
            return set()

"""All that is recorded of imports, so that a rank's program can do them later, as it seems."""

from __future__ import annotations

from .environment_reads import EnvironmentReads
from .import_effects import ImportEffects
from .import_graph import ImportGraph, package_of
from .jax_flags import JaxFlags
from .unseen_modules import can_be_hidden

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping


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

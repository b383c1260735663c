"""What the program's first import of a preloaded package makes up for.

The package has been imported before the program could set variables, or JAX's flags. The flags
are read from the environment again; anything else cannot be undone in a process that lives, and the
user is told.
"""

from __future__ import annotations

from ....kernel.hook import gpus
from ..messages import SetTooLate
from .import_graph import package_of
from .jax_flags import USED_BY_JAX

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from ....kernel.hook.agent_link import AgentLink
    from .environment_reads import EnvironmentReads
    from .jax_flags import JaxFlags


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

"""A compiled program that spans processes, as the hook knows it."""

from __future__ import annotations

from ...protocol.hook_messages import Program

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


class SpanningProgram:
    """A compiled program that spans processes.

    Args:
        name: as JAX calls it.
        fingerprint: of its code and its devices.
        processes: of its mesh; None for all of the job.
        places: the process of each of its devices.
        own: the number of this process.
        communicates: its code says itself that its processes depend on each other.
        where: the user's line that compiled it, later the one that ran it.

    """

    def __init__(
        self,
        name: str,
        fingerprint: str,
        processes: Sequence[int] | None,
        places: Sequence[int],
        own: int,
        communicates: bool,
        where: str,
    ) -> None:
        self.name = name
        self.fingerprint = fingerprint
        self.processes = processes
        self.places = places
        self.own = own
        self.communicates = communicates
        self.where = where
        self.shapes: tuple[str, ...] = ()

    def message(self, where: str) -> Program:
        """What the launcher is to know of it, run at this line of the user's."""
        processes = None if self.processes is None else tuple(self.processes)
        return Program(self.name, self.fingerprint, processes, self.shapes, where)

"""File of the programs that this process runs, which its agent reads; and the rings in it."""

from __future__ import annotations

import mmap
import os
import threading
import zlib

from ..messages import (
    ENTRIES,
    FILE_BYTES,
    MOST_SEQUENCES,
    NUMBER_BITS,
    WORDS,
    NotRecording,
    RecordedProgram,
    RecordedSequence,
    get_ring,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ....hook.agent_link import AgentLink
    from ....wire.hook_messages import Program

    Mesh = tuple[str, tuple[int, ...] | None, tuple[int, ...] | None]

MASK = ENTRIES - 1
# Identities have the bits above the number's.
_MOST_IDENTITY = (1 << (64 - NUMBER_BITS)) - 1


class Sequence:
    """Sequence of programs that a thread runs over a mesh.

    Args:
        index: number of the sequence in the file.
        ring: the latest entries, shared with the agent.

    Attributes:
        count: number of the latest entry.

    """

    __slots__ = ("count", "index", "ring")

    def __init__(self, index: int, ring: memoryview) -> None:
        self.index = index
        self.ring = ring
        self.count = 0

    def record(self, bits: int) -> None:
        """Append an entry."""
        number = self.count + 1
        self.ring[number & MASK] = bits | number
        self.count = number

    @property
    def last_bits(self) -> int:
        """The bits of the latest entry; 0 if there is none."""
        return self.ring[self.count & MASK] ^ self.count

    def withdraw(self) -> None:
        """Remove the latest entry."""
        self.ring[self.count & MASK] = 0
        self.count -= 1


class SequenceFile:
    """File of all sequences of this process.

    Args:
        path: path of the new file.
        link: the link to the agent.

    Attributes:
        main: number of the thread that has called initialize().

    Raises:
        OSError: the file cannot be made.

    """

    def __init__(self, path: str, link: AgentLink) -> None:
        self.path = path
        self.main = threading.get_ident()
        self._link = link
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            # With all blocks: on a full disk, a write into the mapping would end the process.
            rest = FILE_BYTES
            while rest:
                rest -= os.write(fd, bytes(min(rest, 1 << 16)))
            self._words = memoryview(mmap.mmap(fd, FILE_BYTES)).cast("Q")
        finally:
            os.close(fd)
        self._turn = 0
        self._count = 0
        self._known: dict[tuple[Mesh, str, int], Sequence] = {}
        self._threads: dict[tuple[Mesh, str, int], int] = {}
        self._spare = Sequence(-1, memoryview(bytearray(8 * ENTRIES)).cast("Q"))
        self._identities: set[tuple[int, str]] = set()

    def close(self, reason: str) -> None:
        """Give up all sequences, and report why."""
        for index in range(self._count):
            self._words[WORDS * index + 1] = 1
        self._link.send(NotRecording(reason))

    def begin_anew(self) -> None:
        """Begin new sequences: this process has left the job and joined again."""
        self._turn += 1

    def get_sequence(self, mesh: Mesh) -> Sequence:
        """Return the sequence of this thread over a mesh."""
        return self._get(mesh, threading.get_ident())

    def get_main_sequence(self, mesh: Mesh) -> Sequence:
        """Return the sequence of the main thread over a mesh."""
        return self._get(mesh, self.main)

    def _get(self, mesh: Mesh, ident: int) -> Sequence:
        place = mesh, "" if ident == self.main else _get_role(ident), self._turn
        sequence = self._known.get(place)
        if sequence is None:
            sequence = self._known[place] = self._make_sequence(place)
            self._threads[place] = ident
        elif self._threads[place] != ident:
            self.give_up_order(sequence)
        return sequence

    def _make_sequence(self, place: tuple[Mesh, str, int]) -> Sequence:
        if self._count == MOST_SEQUENCES:
            return self._spare
        index = self._count
        self._count += 1
        (platform, processes, devices), thread, _ = place
        key = zlib.crc32(repr(place).encode()) or 1
        self._link.send(RecordedSequence(key, platform, processes, devices, thread))
        self._words[WORDS * index] = key
        return Sequence(index, get_ring(self._words, index))

    def give_up_order(self, sequence: Sequence) -> None:
        """Record that the order of a sequence says nothing: it must not be compared."""
        if sequence.index >= 0:
            self._words[WORDS * sequence.index + 1] = 1

    def make_bits(self, text: str, program: Program) -> int:
        """Return the bits of entries of a program, and send its name to the agent.

        Args:
            text: identifies the called function, and the shape of its first argument.
            program: description of the program.

        """
        identity = zlib.crc32(text.encode("utf-8", "replace")) & _MOST_IDENTITY or 1
        if (identity, program.fingerprint) not in self._identities:
            self._identities.add((identity, program.fingerprint))
            named = program.name, program.where, program.fingerprint
            self._link.send(RecordedProgram(identity, *named))
        return identity << NUMBER_BITS


def _get_role(ident: int) -> str:
    """Return a thread's name without numbers, by which threads of other processes correspond."""
    active = threading._active  # type: ignore[attr-defined]  # makes no entry for other threads
    thread = active.get(ident)
    name = "callback" if thread is None else str(thread.name)
    return "".join(char for char in name if not char.isdigit())[:80] or "thread"

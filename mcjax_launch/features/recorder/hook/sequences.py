"""File of the programs that this process launches, which its agent reads; the rings in it."""

from __future__ import annotations

import mmap
import os
import threading
import zlib

from ..messages import (
    BEGUN,
    COUNT,
    FILE_BYTES,
    HAS_NO_ORDER,
    KEY,
    LAST,
    MOST_SEQUENCES,
    Area,
    NotRecording,
    RecordedSequence,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ....hook.agent_link import AgentLink

    Mesh = tuple[str, tuple[int, ...] | None, tuple[int, ...] | None]


class Sequence:
    """Sequence of programs that this process launches over a mesh.

    Args:
        area: its part of the file.

    Attributes:
        key: the sequence's key; 0 if nothing reads it.
        head, ring: see `Area`.
        thread: number of the thread that has launched the latest program.

    """

    __slots__ = ("head", "key", "ring", "thread")

    def __init__(self, area: Area) -> None:
        self.head, self.ring = area.head, area.ring
        self.key = int(area.head[KEY])
        self.thread = threading.get_ident()

    @property
    def count(self) -> int:
        """Number of entries so far."""
        return int(self.head[COUNT])

    def record(self, identity: int) -> None:
        """Append a program that has been launched."""
        count = self.head[COUNT]
        self.ring[count & LAST] = identity
        self.head[COUNT] = count + 1

    def begin(self, identity: int) -> None:
        """Record which program is about to be launched; with the next entry it is forgotten."""
        self.head[BEGUN] = (self.head[COUNT] + 1) << 32 | identity

    def take_back(self) -> None:
        """Record that nothing is about to be launched."""
        self.head[BEGUN] = 0

    def give_up_order(self) -> None:
        """Record that the order of the sequence says nothing."""
        self.head[HAS_NO_ORDER] = 1


class SequenceFile:
    """File of all sequences of this process.

    Args:
        path: path of the new file.
        link: the link to the agent.

    Raises:
        OSError: the file cannot be made.

    """

    def __init__(self, path: str, link: AgentLink) -> None:
        self.path = path
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
        self._known: dict[tuple[Mesh, int], Sequence] = {}

    def close(self, reason: str) -> None:
        """Give up all sequences, and report why."""
        for sequence in self._known.values():
            sequence.give_up_order()
        self._link.send(NotRecording(reason))

    def begin_anew(self) -> None:
        """Begin new sequences: this process has left the job and joined again."""
        self._turn += 1

    def get_sequence(self, mesh: Mesh) -> Sequence:
        """Return the sequence of a mesh."""
        place = mesh, self._turn
        if place not in self._known:
            self._known[place] = self._make_sequence(place)
        return self._known[place]

    def _make_sequence(self, place: tuple[Mesh, int]) -> Sequence:
        index = len(self._known)
        has_room = index < MOST_SEQUENCES
        key = zlib.crc32(repr(place).encode()) or 1
        self._link.send(RecordedSequence(key, *place[0], has_room))
        if not has_room:
            return Sequence(Area(memoryview(bytearray(FILE_BYTES // MOST_SEQUENCES)).cast("Q"), 0))
        area = Area(self._words, index)
        area.head[KEY] = key
        return Sequence(area)

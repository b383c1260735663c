"""File of the programs that this process launches, which its agent reads; the rings in it."""

from __future__ import annotations

import mmap
import os
import threading
import zlib
from operator import length_hint

from ..messages import (
    BEFORE,
    BEGUN,
    BLOCK,
    ENTRIES,
    FILE_BYTES,
    HAS_NO_ORDER,
    KEY,
    MOST_SEQUENCES,
    Area,
    NotRecording,
    RecordedSequence,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ....hook.agent_link import AgentLink

    Mesh = tuple[str, tuple[int, ...] | None, tuple[int, ...] | None]

_ZEROS = memoryview(bytes(4 * BLOCK)).cast("I")


class Sequence:
    """Sequence of programs that this process launches over a mesh.

    Args:
        index: number of the sequence in the file.
        area: its part of the file.

    Attributes:
        key: the sequence's key; 0 if nothing reads it.
        ring: the latest entries.
        positions: of the next entries in the ring, as an iterator, which is faster than a number;
            at its end a block must be begun (see `begin_block`).
        thread: number of the thread that has launched the latest program.

    """

    __slots__ = (
        *("index", "key", "positions", "ring", "thread"),
        *("_area", "_entrance", "_until"),
    )

    def __init__(self, index: int, area: Area) -> None:
        self.index = index
        self.key = int(area.head[KEY])
        self.ring = area.entries
        self.thread = threading.get_ident()
        self._area = area
        self._entrance = threading.Lock()
        self._until = 0  # number of the last program in the block
        self.positions = iter(range(0))

    @property
    def count(self) -> int:
        """Number of the latest entry."""
        return self._until - length_hint(self.positions)

    def record(self, entry: int) -> None:
        """Append an entry."""
        try:
            self.ring[next(self.positions)] = entry
        except StopIteration:
            self.begin_block(entry)

    def set_begun(self, entry: int) -> None:
        """Record which program is about to be launched; 0 for none."""
        self._area.head[BEGUN] = entry

    def give_up_order(self) -> None:
        """Record that the order of the sequence says nothing."""
        self._area.head[HAS_NO_ORDER] = 1

    @property
    def has_order(self) -> bool:
        """True while only one thread at a time has launched programs."""
        return not self._area.head[HAS_NO_ORDER]

    def begin_block(self, entry: int) -> None:
        """Begin a block with an entry."""
        with self._entrance:
            position = next(self.positions, None)
            if position is not None:  # another thread has begun it
                self.ring[position] = entry
                return
            before = self._until
            begin = before % ENTRIES
            end = begin + BLOCK
            self.ring[end % ENTRIES] = 0
            self.ring[begin:end] = _ZEROS
            self._until = before + BLOCK
            positions = iter(range(begin, end))
            self.ring[next(positions)] = entry
            self.positions = positions
            self._area.head[BEFORE] = before


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
            words = memoryview(mmap.mmap(fd, FILE_BYTES)).cast("Q")
        finally:
            os.close(fd)
        self._areas = [Area(words, index) for index in range(MOST_SEQUENCES)]
        self._turn = 0
        self._count = 0
        self._known: dict[tuple[Mesh, int], Sequence] = {}
        self._spare = Sequence(-1, Area(memoryview(bytearray(FILE_BYTES)).cast("Q"), 0))

    def close(self, reason: str) -> None:
        """Give up all sequences, and report why."""
        for area in self._areas[: self._count]:
            area.head[HAS_NO_ORDER] = 1
        self._link.send(NotRecording(reason))

    def begin_anew(self) -> None:
        """Begin new sequences: this process has left the job and joined again."""
        self._turn += 1

    def get_sequence(self, mesh: Mesh) -> Sequence:
        """Return the sequence of a mesh."""
        place = mesh, self._turn
        sequence = self._known.get(place)
        if sequence is None:
            sequence = self._known[place] = self._make_sequence(place)
        return sequence

    def _make_sequence(self, place: tuple[Mesh, int]) -> Sequence:
        index, has_room = self._count, self._count < MOST_SEQUENCES
        (platform, processes, devices), _ = place
        key = zlib.crc32(repr(place).encode()) or 1
        self._link.send(RecordedSequence(key, platform, processes, devices, has_room))
        if not has_room:
            return self._spare
        self._count += 1
        self._areas[index].head[KEY] = key
        return Sequence(index, self._areas[index])

"""File of the programs that this process runs, which its agent reads; and the rings in it."""

from __future__ import annotations

import mmap
import os
import threading
import time
import zlib
from operator import length_hint

from ..messages import (
    BEFORE,
    BLOCKS,
    ENTRIES,
    FILE_BYTES,
    HAS_NO_ORDER,
    IDENTITY_BITS,
    KEY,
    MOST_SEQUENCES,
    TIMED,
    TIMES,
    Area,
    NotRecording,
    RecordedProgram,
    RecordedSequence,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ....hook.agent_link import AgentLink
    from ....wire.hook_messages import Program

    Mesh = tuple[str, tuple[int, ...] | None, tuple[int, ...] | None]

_MOST_IDENTITY = (1 << IDENTITY_BITS) - 1
# Blocks are made longer if there would be more than so many a second, as judged so often.
_MOST_PER_S = 100
_JUDGED_NS = 500_000_000
_ZEROS = memoryview(bytes(4 * BLOCKS[-1])).cast("I")


class Sequence:
    """Sequence of programs that a thread runs over a mesh.

    Args:
        index: number of the sequence in the file.
        area: its part of the file.

    Attributes:
        ring: the latest entries.
        positions: of the next entries in the ring, as an iterator, which is faster than a number;
            at its end a block must be begun (see `begin_block`).

    """

    __slots__ = (
        *("index", "positions", "ring"),
        *("_area", "_before", "_judged", "_length", "_until"),
    )

    def __init__(self, index: int, area: Area) -> None:
        self.index = index
        self.ring = area.entries
        self._area = area
        self._before = self._until = 0  # number of the last program before the block, and in it
        self._length = BLOCKS[0]  # of whole blocks; and number and time when it was judged
        self._judged = 0, time.monotonic_ns()
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

    def begin_block(self, entry: int) -> None:
        """Begin a block with an entry, and record the time."""
        now, before = time.monotonic_ns(), self._until
        length = self._choose_length(before, now)
        length -= before % length
        begin = before % ENTRIES
        end = begin + length
        self.ring[end % ENTRIES] = 0
        self.ring[begin:end] = _ZEROS[:length]
        self._before, self._until = before, before + length
        self.positions = iter(range(begin, end))
        self.ring[next(self.positions)] = entry
        head, times = self._area.head, self._area.times
        count = head[TIMED]
        at = 2 * (count % TIMES)
        times[at], times[at + 1] = before + 1, now
        head[TIMED], head[BEFORE] = count + 1, before

    def _choose_length(self, before: int, now: int) -> int:
        """Return the length of whole blocks: long if programs come fast."""
        ran, elapsed_ns = before - self._judged[0], now - self._judged[1]
        if elapsed_ns >= _JUDGED_NS:
            self._judged = before, now
            most = _MOST_PER_S * elapsed_ns / 1e9
            self._length = next((each for each in BLOCKS if ran <= most * each), BLOCKS[-1])
        return self._length

    @property
    def last(self) -> int:
        """The latest entry; 0 if there is none."""
        return self.ring[(self.count - 1) % ENTRIES]

    def withdraw(self) -> None:
        """Remove the latest entry."""
        count = self.count - 1
        begin = count % ENTRIES
        self.ring[begin] = 0
        if count < self._before:  # the block's first entry has been withdrawn before
            self._before, self._until = count, count + 1
            self._area.head[BEFORE] = count
        self.positions = iter(range(begin, begin + self._until - count))


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
            words = memoryview(mmap.mmap(fd, FILE_BYTES)).cast("Q")
        finally:
            os.close(fd)
        self._areas = [Area(words, index) for index in range(MOST_SEQUENCES)]
        self._turn = 0
        self._count = 0
        self._known: dict[tuple[Mesh, str, int], Sequence] = {}
        self._threads: dict[tuple[Mesh, str, int], int] = {}
        self._spare = Sequence(-1, Area(memoryview(bytearray(FILE_BYTES)).cast("Q"), 0))
        self._identities: set[tuple[int, str]] = set()

    def close(self, reason: str) -> None:
        """Give up all sequences, and report why."""
        for area in self._areas[: self._count]:
            area.head[HAS_NO_ORDER] = 1
        self._link.send(NotRecording(reason))

    def begin_anew(self) -> None:
        """Begin new sequences: this process has left the job and joined again."""
        self._turn += 1

    def get_sequence(self, mesh: Mesh, ident: int = 0) -> Sequence:
        """Return the sequence of a thread over a mesh: by default of this thread."""
        ident = ident or threading.get_ident()
        place = mesh, "" if ident == self.main else _get_role(ident), self._turn
        sequence = self._known.get(place)
        if sequence is None:
            sequence = self._known[place] = self._make_sequence(place)
            self._threads[place] = ident
        elif self._threads[place] != ident:
            self.give_up_order(sequence)
        return sequence

    def _make_sequence(self, place: tuple[Mesh, str, int]) -> Sequence:
        index, has_room = self._count, self._count < MOST_SEQUENCES
        (platform, processes, devices), thread, _ = place
        key = zlib.crc32(repr(place).encode()) or 1
        self._link.send(RecordedSequence(key, platform, processes, devices, thread, has_room))
        if not has_room:
            return self._spare
        self._count += 1
        self._areas[index].head[KEY] = key
        return Sequence(index, self._areas[index])

    def give_up_order(self, sequence: Sequence) -> None:
        """Record that the order of a sequence says nothing: it must not be compared."""
        if sequence.index >= 0:
            self._areas[sequence.index].head[HAS_NO_ORDER] = 1

    def identify(self, text: str, program: Program) -> int:
        """Return a program's identity, which is its entry, and send its name to the agent.

        Args:
            text: identifies the called function, and the shape of its first argument.
            program: description of the program.

        """
        identity = zlib.crc32(text.encode("utf-8", "replace")) & _MOST_IDENTITY or 1
        if (identity, program.fingerprint) not in self._identities:
            self._identities.add((identity, program.fingerprint))
            named = program.name, program.where, program.fingerprint
            self._link.send(RecordedProgram(identity, *named))
        return identity


def _get_role(ident: int) -> str:
    """Return a thread's name without numbers, by which threads of other processes correspond."""
    active = threading._active  # type: ignore[attr-defined]  # makes no entry for other threads
    thread = active.get(ident)
    name = "callback" if thread is None else str(thread.name)
    return "".join(char for char in name if not char.isdigit())[:80] or "thread"

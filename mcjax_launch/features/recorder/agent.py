"""Reports to the launcher of the programs that this host's ranks record in shared files."""

from __future__ import annotations

import mmap
import os
import time
import zlib
from binascii import b2a_base64

from ...agent.part import AgentPart
from .messages import (
    ENTRIES,
    FILE_BYTES,
    MOST_SEQUENCES,
    NUMBER_BITS,
    WORDS,
    Entries,
    Recorded,
    Recording,
    get_ring,
)

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from ...agent.hook_server import HookConnection
    from ...agent.part import HostAgent
    from ...wire.messages import FromHook

#: Seconds between two reports.
EVERY_S = 1.0
_NUMBER = (1 << NUMBER_BITS) - 1
_MASK = ENTRIES - 1


class SequenceReader:
    """Reader of the entries of a sequence, while the rank writes them.

    Args:
        ring: the sequence's ring.

    """

    def __init__(self, ring: memoryview) -> None:
        self._ring = ring
        self._number = 0  # of the last entry that was read, and the entry
        self._last = 0

    def read(self) -> tuple[int, list[int]] | None:
        """Return the number of the first new entry, and the new programs; None if nothing is new.

        The last entry may be withdrawn later; then its number is returned again.
        """
        ring, number, was_withdrawn = self._ring, self._number, False
        if number and ring[number & _MASK] != self._last and not self._is_overwritten(number):
            number, was_withdrawn = number - 1, True
            self._last = ring[number & _MASK]
        programs: list[int] = []
        first = number + 1
        while True:
            entry = ring[(number + 1) & _MASK]
            found = entry & _NUMBER
            if found < number + 1:
                break
            if found > number + 1:  # older entries are overwritten
                programs, first = [], found
            number, self._last = found, entry
            programs.append(entry >> NUMBER_BITS)
        self._number = number
        return (first, programs) if programs or was_withdrawn else None

    def _is_overwritten(self, number: int) -> bool:
        return self._ring[number & _MASK] & _NUMBER > number


class _Process:
    """Recording process of a rank; `number` counts those of the rank."""

    def __init__(self, rank: int, number: int, path: str) -> None:
        self.rank = rank
        self.number = number
        with open(path, "rb") as file:
            self._words = memoryview(mmap.mmap(file.fileno(), FILE_BYTES, access=mmap.ACCESS_READ))
        self._words = self._words.cast("Q")
        self._readers = [
            SequenceReader(get_ring(self._words, index)) for index in range(MOST_SEQUENCES)
        ]

    def read(self) -> list[Entries]:
        """Return the new entries of all sequences."""
        found = []
        for index, reader in enumerate(self._readers):
            key, has_no_order = self._words[WORDS * index : WORDS * (index + 1)]
            if not key:
                break
            if (new := reader.read()) is not None:
                first, programs = new
                packed = b"".join(program.to_bytes(4, "little") for program in programs)
                text = b2a_base64(zlib.compress(packed, 1), newline=False).decode()
                place = self.rank, self.number, key
                found.append(Entries(*place, first, text, not has_no_order))
        return found


class RecordReports(AgentPart):
    """Part that reads what ranks have recorded, and reports it once a second."""

    is_reusable = True

    def __init__(self, agent: HostAgent) -> None:
        super().__init__(agent)
        self._processes: dict[int, _Process] = {}  # by pid
        self._counts: dict[int, int] = {}  # of processes, by rank
        self.deadline: float | None = None
        agent.timers.append(self)

    def on_hook_message(self, hook: HookConnection, said: FromHook) -> None:
        """Begin to read a process's file, or pass on what the launcher must know."""
        if not isinstance(said.message, Recording):
            self.agent.link.send(said)
            return
        path = os.path.join(self.agent.folder, os.path.basename(said.message.path))
        number = self._counts.get(hook.rank, 0)
        self._counts[hook.rank] = number + 1
        try:
            self._processes[hook.pid] = _Process(hook.rank, number, path)
            os.unlink(path)
        except (OSError, ValueError):  # a program has sent nonsense
            return
        self.deadline = self.deadline or time.monotonic() + EVERY_S

    def on_hook_loss(self, hook: HookConnection) -> None:
        """Report the last entries of a process that is gone, and forget it."""
        process = self._processes.pop(hook.pid, None)
        if process is not None:
            self._report([process])
        if not self._processes:
            self.deadline = None

    def expire(self, now: float) -> None:
        """Report what is new, if it is time."""
        if self.deadline is not None and now >= self.deadline:
            self.deadline = now + EVERY_S
            self._report(list(self._processes.values()))

    def _report(self, processes: list[_Process]) -> None:
        found = tuple(entries for process in processes for entries in process.read())
        if found:
            self.agent.link.send(Recorded(found))


PART = RecordReports

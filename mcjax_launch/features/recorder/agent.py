"""Reports to the launcher of the programs that this host's ranks record in shared files."""

from __future__ import annotations

import mmap
import os
import time
import zlib
from array import array
from binascii import b2a_base64

from ...agent.part import AgentPart
from .messages import (
    BEGUN,
    COUNT,
    ENTRIES,
    FILE_BYTES,
    HAS_NO_ORDER,
    KEY,
    LAST,
    MOST_SEQUENCES,
    Area,
    AskText,
    ComputedDigests,
    Entries,
    ProgramText,
    RankDigests,
    Recorded,
    RecordedSequence,
    Recording,
)

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from ...agent.hook_server import HookConnection
    from ...agent.part import HostAgent
    from ...wire.codec import Message
    from ...wire.frames import Raw
    from ...wire.messages import FromHook

#: Seconds between two reports; less if more programs would come than these, but not less than so.
EVERY_S = 0.5
_MOST_PROGRAMS, _LEAST_S = ENTRIES // 4, 0.1


class SequenceReader:
    """Reader of the entries of a sequence, while the rank writes it."""

    def __init__(self, area: Area) -> None:
        self.area = area
        self._number = 0  # of the last entry that was read
        self._seen = 0, 0  # the head's other words then

    def read(self) -> tuple[int, array[int], int] | None:
        """Return the number of the first new entry, the new entries, and the program begun.

        Returns:
            None if nothing is new. That the sequence has no order any more is new, too.

        """
        head, ring = self.area.head, self.area.ring
        begun, begin, count = head[BEGUN], self._number, head[COUNT]
        while True:
            place, end = begin & LAST, (begin & LAST) + count - begin
            programs = array("I", ring[place:end].tobytes())
            programs.frombytes(ring[: max(end - ENTRIES, 0)].tobytes())
            # One entry more than are counted may be overwritten.
            if count - begin < ENTRIES and head[COUNT] - begin < ENTRIES:
                break
            # Overwritten, perhaps only now: this process may have been suspended. The latest that
            # will stay for a while are read, of each rank, so that they can be compared.
            count = head[COUNT]
            begin = count - ENTRIES // 2
        if begun >> 32 != count + 1:
            begun = 0  # it has been launched
        seen = begun, head[HAS_NO_ORDER]
        is_new = bool(programs) or seen != self._seen
        self._number, self._seen = count, seen
        return (begin + 1, programs, begun & 0xFFFFFFFF) if is_new else None


class _Process:
    """Recording process of a rank; `number` counts those of the rank.

    Args:
        rank, number: the rank, and the number.
        path: path of the file.

    Attributes:
        most: number of programs that were read last in the sequence with most.
        known: number of sequences that the launcher knows of.

    """

    most = known = 0

    def __init__(self, rank: int, number: int, path: str) -> None:
        self.rank = rank
        self.number = number
        with open(path, "rb") as file:
            shared = mmap.mmap(file.fileno(), FILE_BYTES, access=mmap.ACCESS_READ)
        words = memoryview(shared).cast("Q")
        self._readers = [SequenceReader(Area(words, index)) for index in range(MOST_SEQUENCES)]

    def read(self) -> list[Entries]:
        """Return the new entries of all sequences that the launcher knows of."""
        found, self.most = [], 0
        for reader in self._readers[: self.known]:
            head = reader.area.head
            if (new := reader.read()) is not None:
                first, programs, begun = new
                self.most = max(self.most, len(programs))
                text = b2a_base64(zlib.compress(programs.tobytes(), 1), newline=False).decode()
                place = self.rank, self.number, head[KEY]
                found.append(Entries(*place, first, text, begun, not head[HAS_NO_ORDER]))
        return found


class RecordReports(AgentPart):
    """Part that reads what ranks have recorded, and reports it twice a second."""

    def __init__(self, agent: HostAgent) -> None:
        super().__init__(agent)
        self._processes: dict[int, _Process] = {}  # by pid
        self._paths: dict[int, list[str]] = {}  # of the files of each rank's processes
        self.deadline: float | None = None
        self._reported_at = time.monotonic()
        agent.timers.append(self)

    def on_message(self, message: Message | Raw) -> None:
        """Tell the launcher the text of a program, if its rank is on this host."""
        assert isinstance(message, AskText)
        for path in self._paths.get(message.rank, ()):
            try:
                with open(f"{path}.{message.identity}", "rb") as file:
                    text = b2a_base64(file.read(), newline=False).decode()
            except OSError:  # another process of the rank has it
                continue
            self.agent.link.send(ProgramText(message.rank, message.identity, text))

    def on_hook_message(self, hook: HookConnection, said: FromHook) -> None:
        """Begin to read a process's file, or pass on what the launcher must know."""
        process = self._processes.get(hook.pid)
        if isinstance(said.message, Recording):
            self._open(hook, said.message.path)
        elif not isinstance(said.message, ComputedDigests):
            super().on_hook_message(hook, said)
            if process is not None and isinstance(said.message, RecordedSequence):
                process.known += said.message.is_recorded
        elif process is not None:
            digests = said.message.digests
            self.agent.link.send(RankDigests(hook.rank, process.number, digests))

    def _open(self, hook: HookConnection, path: str) -> None:
        path = os.path.join(self.agent.folder, os.path.basename(path))
        paths = self._paths.setdefault(hook.rank, [])
        try:
            self._processes[hook.pid] = _Process(hook.rank, len(paths), path)
            paths.append(path)
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

    def on_leaving(self, rank: int) -> None:
        """Report the last entries of a rank's processes, before their end is reported."""
        self._report([each for each in self._processes.values() if each.rank == rank])

    def on_rank_end(self, rank: int) -> None:
        """Report the last entries of a rank's processes, before its end is reported."""
        self.on_leaving(rank)

    def expire(self, now: float) -> None:
        """Report what is new, if it is time."""
        if self.deadline is not None and now >= self.deadline:
            most = self._report(list(self._processes.values()))
            wait_s = _MOST_PROGRAMS * (now - self._reported_at) / max(most, 1)
            self._reported_at = now
            self.deadline = now + min(max(wait_s, _LEAST_S), EVERY_S)

    def _report(self, processes: list[_Process]) -> int:
        """Report what is new; return the number of new programs in the fastest sequence."""
        found = tuple(entries for process in processes for entries in process.read())
        if found:
            self.agent.link.send(Recorded(found))
        return max((process.most for process in processes), default=0)


PART = RecordReports

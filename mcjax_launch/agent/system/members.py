"""Which processes are a job's, where no kernel brings orphans back to the agent.

A process belongs to the job if a process of the job has started it, if it is in a session or a
group that one has made, or if the job's mark is in its environment. A process that has belonged to
it once does so to its end.
"""

from __future__ import annotations

import os

import psutil

# In the environment of every rank: the private folder of its job on this host. MCJAX_JOB_ID would
# not do: a job may have several agents on one machine.
_MARK = "MCJAX_LOCAL_JOB"
_LIST = "processes"
# Two processes may disagree so much on when a third began: a clock is set.
_SAME_S = 2.0


class _Row:
    """A process, as it was seen."""

    def __init__(self, process: psutil.Process) -> None:
        self.pid: int = process.pid
        self.start: float = process.create_time()
        with process.oneshot():
            self.parent: int = process.ppid()
            self.is_zombie = process.status() == psutil.STATUS_ZOMBIE
        self.session = os.getsid(self.pid)
        self.group = os.getpgid(self.pid)


class Members:
    """The processes of a job on this host, but for its agent and guardian.

    The agent and its guardian each have one. What the agent starts it notes in the private folder:
    if it is killed, the guardian reads that.

    Args:
        folder: the job's private one.

    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._known: dict[int, float] = {}  # pid -> start, of each that has been seen
        self._strangers: dict[int, float] = {}  # and of those that have no mark

    @property
    def mark(self) -> dict[str, str]:
        """What a process of the job has in its environment."""
        return {_MARK: self._folder}

    def add(self, pid: int) -> None:
        """Note one that has just been started."""
        try:
            start = psutil.Process(pid).create_time()
        except psutil.Error:
            return
        self._known[pid] = start
        with open(os.path.join(self._folder, _LIST), "a") as file:
            file.write(f"{pid} {start!r}\n")

    def living(self) -> list[int]:
        """Those that have not ended, parents first."""
        self._read_list()
        rows = _rows()
        own = os.getpid()
        above = _ancestors(own, rows)
        found: dict[int, _Row] = {}
        ahead = [row for row in rows.values() if row.parent == own or self._is_known(row)]
        while True:
            for row in ahead:  # which grows meanwhile
                if row.pid not in found and row.pid != own and row.pid not in above:
                    found[row.pid] = row
                    ahead += (below for below in rows.values() if below.parent == row.pid)
            self._known.update((row.pid, row.start) for row in found.values())
            led = self._led(rows)
            ahead = [
                row
                for row in rows.values()
                if row.pid not in found and (row.session in led or row.group in led)
            ]
            ahead = ahead or [row for row in rows.values() if self._is_marked(row, found)]
            ahead = [row for row in ahead if row.pid != own and row.pid not in above]
            if not ahead:
                break
        self._forget(rows)
        return [row.pid for row in found.values() if not row.is_zombie]

    def _is_known(self, row: _Row) -> bool:
        return _is_same(self._known.get(row.pid), row)

    def _led(self, rows: dict[int, _Row]) -> set[int]:
        """The sessions and groups that are the job's: a number is not used again while one is."""
        return {pid for pid in self._known if pid not in rows or self._is_known(rows[pid])}

    def _is_marked(self, row: _Row, found: dict[int, _Row]) -> bool:
        """Whether it has the mark, as far as this user may see that."""
        if row.pid in found or row.is_zombie or _is_same(self._strangers.get(row.pid), row):
            return False
        try:
            if psutil.Process(row.pid).environ().get(_MARK) == self._folder:
                return True
        except (psutil.Error, OSError):
            pass
        self._strangers[row.pid] = row.start
        return False

    def _read_list(self) -> None:
        try:
            with open(os.path.join(self._folder, _LIST)) as file:
                for line in file:
                    pid, start = line.split()
                    self._known.setdefault(int(pid), float(start))
        except (OSError, ValueError):  # there is none yet; or a rank has written to it
            pass

    def _forget(self, rows: dict[int, _Row]) -> None:
        """Whoever has ended and leads nobody is of no use."""
        leading = {row.session for row in rows.values()} | {row.group for row in rows.values()}
        for pid in [pid for pid in self._known if pid not in rows and pid not in leading]:
            del self._known[pid]
        for pid in [pid for pid in self._strangers if pid not in rows]:
            del self._strangers[pid]


def _is_same(start: float | None, row: _Row) -> bool:
    """Whether it is the process that began then, and not another with its number."""
    return start is not None and abs(start - row.start) < _SAME_S


def _rows() -> dict[int, _Row]:
    """Every process that can be looked at."""
    rows = map(_row, filter(None, psutil.pids()))  # 0 would be this process to what asks of it
    return {row.pid: row for row in rows if row is not None}


def _row(pid: int) -> _Row | None:
    try:
        return _Row(psutil.Process(pid))
    except (psutil.Error, OSError):  # it has gone meanwhile, or is another user's
        return None


def _ancestors(pid: int, rows: dict[int, _Row]) -> set[int]:
    found: set[int] = set()
    while pid in rows and (pid := rows[pid].parent) not in found:
        found.add(pid)
    return found

"""Restarts of failed ranks, each as soon as no earlier process of the rank is left."""

from __future__ import annotations

import signal
import time

from ..wire import hook_environ
from ..wire.timers import scale_time
from .system import system
from .usage import find_rank

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..wire.messages import RankOrder
    from .system.unix import HostProcess

# Seconds for the kernel to end a failed rank's processes; the driver of a GPU may need long.
_PATIENCE_S = scale_time(60.0)
_CHECK_S = 0.1


class RankRestarts:
    """Queue of rank restarts, each of which waits for the end of the rank's earlier processes.

    Args:
        pids: rank of each running rank's own process, by pid; the agent keeps it up to date.
        stuck: called with a rank and the pids of its processes that cannot be killed.

    Attributes:
        start: called with a RankOrder to start the rank.
        job_id: id of the job, if an earlier agent on this host has started its ranks; else "".

    """

    def __init__(
        self,
        pids: Mapping[int, int],
        stuck: Callable[[int, list[int]], object],
    ) -> None:
        self._pids = pids
        self.start: Callable[[RankOrder], object] = lambda order: None
        self._stuck = stuck
        self.job_id = ""
        self._ended: dict[int, int] = {}  # rank -> its latest pid
        self._check_at = 0.0
        self._next: dict[int, tuple[RankOrder, float]] = {}  # restarts, and when to give up

    def record_end(self, rank: int, pid: int) -> None:
        """Record that a rank's own process has been reaped."""
        self._ended[rank] = pid

    def begin(self, order: RankOrder) -> None:
        """Start a rank again, as soon as its earlier processes are gone."""
        self._next[order.process_id] = order, time.monotonic() + _PATIENCE_S
        self.check()

    def check(self) -> None:
        """Kill what is left of the queued ranks; start each rank that has no process left."""
        for rank, (order, _) in list(self._next.items()):
            if not self.kill(rank):
                del self._next[rank]
                self.start(order)

    def kill(self, rank: int) -> int:
        """Send SIGKILL to all processes of a rank; return their number."""
        left = self._list_pids(rank)
        for pid in left:
            system.signal_process(pid, signal.SIGKILL)
        return len(left)

    @property
    def deadline(self) -> float | None:
        """Time (time.monotonic) of the next check, or of giving up on processes; None if idle."""
        limit = min((limit for _, limit in self._next.values()), default=None)
        return limit if limit is None or self._hears_of_all else min(limit, self._check_at)

    @property
    def _hears_of_all(self) -> bool:
        """True if SIGCHLD announces the end of each process for which a restart waits."""
        return system.adopts_orphans and not self.job_id

    def expire(self, now: float) -> None:
        """Check restarts that SIGCHLD does not trigger; give up those past their time limit."""
        if not self._hears_of_all and self._next and now >= self._check_at:
            self._check_at = now + _CHECK_S
            self.check()
        for rank, (_, limit) in list(self._next.items()):
            if now >= limit:
                del self._next[rank]
                self._stuck(rank, self._list_pids(rank))

    def _list_pids(self, rank: int) -> list[int]:
        """Return the pids of all processes of a rank, orphans included."""
        found = {process.pid: process for process in system.list_processes()}
        leaders = {self._ended.get(rank, -1): rank, **self._pids}
        ours = system.list_descendants()
        left = [pid for pid in ours if _is_led(pid, found, rank, leaders)]
        if self.job_id:
            left += [pid for pid in found.keys() - ours if self._is_of_earlier_agent(pid, rank)]
        return left

    def _is_of_earlier_agent(self, pid: int, rank: int) -> bool:
        """Return whether a process belongs to a rank that an earlier agent has started."""
        environ = system.read_environ(pid)
        is_of_job = environ.get("MCJAX_JOB_ID") == self.job_id
        return is_of_job and _is_of(rank, environ)


def _is_led(
    pid: int, found: Mapping[int, HostProcess], rank: int, leaders: Mapping[int, int]
) -> bool:
    """Return whether a process is of this rank, by ancestors or session, else by environment.

    Args:
        pid: pid of the process.
        found: all processes of this host, by pid.
        rank: the rank.
        leaders: rank of each rank's own process, running or ended, by pid.

    """
    owner = find_rank(found.get(pid), found, leaders)
    return _is_of(rank, system.read_environ(pid)) if owner is None else owner == rank


def _is_of(rank: int, environ: Mapping[str, str]) -> bool:
    """Return whether these variables are of this rank; False for the import server's."""
    return environ.get("JAX_PROCESS_ID") == str(rank) and hook_environ.RUN_INSTEAD not in environ

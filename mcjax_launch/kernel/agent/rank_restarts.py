"""Restarts of ranks: all processes of a failed rank are gone before it is started again."""

from __future__ import annotations

import signal
import time

from ..wire import hook_environ
from ..wire.timers import scaled
from .system import system
from .usage import rank_of

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..wire.messages import RankOrder
    from .system.unix import HostProcess

# Seconds for the kernel to end a failed rank's processes; the driver of a GPU may need long.
_PATIENCE_S = scaled(60.0)
_CHECK_S = 0.1


class RankRestarts:
    """Record of failed ranks' processes, and the restarts that wait for their ends.

    Args:
        pids: the rank of each running process of a rank, by pid; it changes.
        stuck: called with a rank and those of its processes that cannot be killed.

    Attributes:
        start: starts a rank.
        job_id: the job's id, if an earlier agent on this host has started its ranks; else "".

    """

    def __init__(
        self,
        pids: Mapping[int, int],
        stuck: Callable[[int, list[int]], object],
    ) -> None:
        self._pids = pids
        self.start: Callable[[RankOrder], object] = _start_nothing
        self._stuck = stuck
        self.job_id = ""
        self._ended: dict[int, int] = {}  # rank -> its latest pid
        self._check_at = 0.0
        self._next: dict[int, tuple[RankOrder, float]] = {}  # restarts, and when to give up

    def ended(self, rank: int, pid: int) -> None:
        """Record that a rank's own process has been reaped."""
        self._ended[rank] = pid

    def begin(self, order: RankOrder) -> None:
        """Start a rank again, as soon as its earlier processes are gone."""
        self._next[order.process_id] = order, time.monotonic() + _PATIENCE_S
        self.check()

    def check(self) -> None:
        """Begin the restarts whose ranks have no processes left."""
        for rank, (order, _) in list(self._next.items()):
            if not self.kill(rank):
                del self._next[rank]
                self.start(order)

    def kill(self, rank: int) -> int:
        """Kill all processes of a rank; return how many there were."""
        left = self._left(rank)
        for pid in left:
            system.signal_process(pid, signal.SIGKILL)
        return len(left)

    @property
    def deadline(self) -> float | None:
        """Time to check again, or to give up on processes that cannot be killed."""
        limit = min((limit for _, limit in self._next.values()), default=None)
        return limit if limit is None or self._hears_of_all else min(limit, self._check_at)

    @property
    def _hears_of_all(self) -> bool:
        """True if SIGCHLD announces the end of every process that is waited for."""
        return system.adopts_orphans and not self.job_id

    def expire(self, now: float) -> None:
        """Check again, where SIGCHLD does not announce all ends, and give up at the time limits."""
        if not self._hears_of_all and self._next and now >= self._check_at:
            self._check_at = now + _CHECK_S
            self.check()
        for rank, (_, limit) in list(self._next.items()):
            if now >= limit:
                del self._next[rank]
                self._stuck(rank, self._left(rank))

    def _left(self, rank: int) -> list[int]:
        """Return all processes of a rank; an orphan is recognised by its environment."""
        found = {process.pid: process for process in system.processes()}
        leaders = {self._ended.get(rank, -1): rank, **self._pids}
        ours = system.descendants()
        left = [pid for pid in ours if _is_led(pid, found, rank, leaders)]
        if self.job_id:
            left += [pid for pid in found.keys() - ours if self._was(pid, rank)]
        return left

    def _was(self, pid: int, rank: int) -> bool:
        """Return whether a process belongs to a rank that an earlier agent has started."""
        environ = system.environ(pid)
        is_of_job = environ.get("MCJAX_JOB_ID") == self.job_id
        return is_of_job and _is_of(rank, environ)


def _start_nothing(order: RankOrder) -> None:
    """Do nothing; stands for `RankRestarts.start` until that is known."""


def _is_led(
    pid: int, found: Mapping[int, HostProcess], rank: int, leaders: Mapping[int, int]
) -> bool:
    """Return whether a process is this rank's: by its leaders, else by its environment."""
    owner = rank_of(found.get(pid), found, leaders)
    return _is_of(rank, system.environ(pid)) if owner is None else owner == rank


def _is_of(rank: int, environ: Mapping[str, str]) -> bool:
    """Return whether these variables are a rank's; a forked rank shows the import server's."""
    return environ.get("JAX_PROCESS_ID") == str(rank) and hook_environ.RUN_INSTEAD not in environ

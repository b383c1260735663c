"""Ranks that are started again: what an ended life has left is gone before the next one begins."""

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

# What the kernel gets to end what an ended life has left; the driver of a GPU may need long.
_PATIENCE_S = scaled(60.0)
_LOOK_S = 0.1


class Lives:
    """Knows the processes that ended lives have left, and begins the next ones.

    Args:
        pids: of the ranks that live, and the number of each; changes.
        stuck: called with a rank and the processes of its last life that cannot be killed.

    Attributes:
        start: starts a rank.
        job_id: of the job, if an earlier agent on this host has begun lives of its ranks; or "".

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
        self._ended: dict[int, int] = {}  # rank -> the pid that it had last
        self._look_at = 0.0
        self._next: dict[int, tuple[RankOrder, float]] = {}  # and how long that may wait

    def ended(self, rank: int, pid: int) -> None:
        """A rank's own process has been reaped."""
        self._ended[rank] = pid

    def begin(self, order: RankOrder) -> None:
        """Start a rank again, as soon as nothing is left of it."""
        self._next[order.process_id] = order, time.monotonic() + _PATIENCE_S
        self.look()

    def look(self) -> None:
        """Something may have ended: begin what waits for that."""
        for rank, (order, _) in list(self._next.items()):
            if not self.kill(rank):
                del self._next[rank]
                self.start(order)

    def kill(self, rank: int) -> int:
        """Kill what is left of a rank; how many processes that was."""
        left = self._left(rank)
        for pid in left:
            system.signal_process(pid, signal.SIGKILL)
        return len(left)

    @property
    def deadline(self) -> float | None:
        """When to give up on what cannot be killed."""
        limit = min((limit for _, limit in self._next.values()), default=None)
        return limit if limit is None or self._is_told else min(limit, self._look_at)

    @property
    def _is_told(self) -> bool:
        """Whether the end of everything that is waited for is told."""
        return system.adopts_orphans and not self.job_id

    def expire(self, now: float) -> None:
        """Give up on it, if it is time; look again where nobody tells of the ends of orphans."""
        if not self._is_told and self._next and now >= self._look_at:
            self._look_at = now + _LOOK_S
            self.look()
        for rank, (_, limit) in list(self._next.items()):
            if now >= limit:
                del self._next[rank]
                self._stuck(rank, self._left(rank))

    def _left(self, rank: int) -> list[int]:
        """All processes of a rank, its own too; an orphan's environment tells whose it is."""
        found = {process.pid: process for process in system.processes()}
        leaders = {self._ended.get(rank, -1): rank, **self._pids}
        ours = system.descendants()
        left = [pid for pid in ours if _is_led(pid, found, rank, leaders)]
        if self.job_id:
            left += [pid for pid in found.keys() - ours if self._was(pid, rank)]
        return left

    def _was(self, pid: int, rank: int) -> bool:
        """Whether a process is of a rank that an earlier agent has started."""
        environ = system.environ(pid)
        is_of_job = environ.get("MCJAX_JOB_ID") == self.job_id
        return is_of_job and _is_of(rank, environ)


def _start_nothing(order: RankOrder) -> None:
    """Stand for what starts a rank, until that is known."""


def _is_led(
    pid: int, found: Mapping[int, HostProcess], rank: int, leaders: Mapping[int, int]
) -> bool:
    """Whether a process is this rank's, as far as its own process or one of `leaders` tells."""
    owner = rank_of(found.get(pid), found, leaders)
    return _is_of(rank, system.environ(pid)) if owner is None else owner == rank


def _is_of(rank: int, environ: Mapping[str, str]) -> bool:
    """Whether these are the variables of a rank: a forked one shows those of another process."""
    return environ.get("JAX_PROCESS_ID") == str(rank) and hook_environ.INSTEAD not in environ

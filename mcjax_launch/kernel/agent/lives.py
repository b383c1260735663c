"""Ranks that are started again: what an ended life has left is gone before the next one begins."""

from __future__ import annotations

import signal
import time

from ..wire import hook_environ
from ..wire.timers import scaled
from .system import system

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
        begin: starts a rank.
        stuck: called with a rank and the processes of its last life that cannot be killed.

    """

    def __init__(
        self,
        pids: Mapping[int, int],
        begin: Callable[[RankOrder], object],
        stuck: Callable[[int, list[int]], object],
    ) -> None:
        self._pids = pids
        self._begin = begin
        self._stuck = stuck
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
                self._begin(order)

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
        return limit if limit is None or system.adopts_orphans else min(limit, self._look_at)

    def expire(self, now: float) -> None:
        """Give up on it, if it is time; look again where nobody tells of the ends of orphans."""
        if not system.adopts_orphans and self._next and now >= self._look_at:
            self._look_at = now + _LOOK_S
            self.look()
        for rank, (_, limit) in list(self._next.items()):
            if now >= limit:
                del self._next[rank]
                self._stuck(rank, self._left(rank))

    def _left(self, rank: int) -> list[int]:
        """All processes of a rank, its own too; an orphan's environment tells whose it is."""
        found = {process.pid: process for process in system.processes()}
        last = self._ended.get(rank, 0)
        return [pid for pid in system.descendants() if self._rank_of(pid, found, rank, last)]

    def _rank_of(self, pid: int, found: Mapping[int, HostProcess], rank: int, last: int) -> bool:
        """Whether a process is this rank's, whose own process was `last`."""
        at = found.get(pid)
        while at is not None:
            owner = self._pids.get(at.pid, self._pids.get(at.session))
            if owner is not None:
                return owner == rank
            if last and last in (at.pid, at.session, system.group_of(at.pid)):
                return True
            at = found.get(at.parent)
        environ = system.environ(pid)
        # A forked rank shows the variables of the process that it was forked from.
        return environ.get("JAX_PROCESS_ID") == str(rank) and hook_environ.INSTEAD not in environ

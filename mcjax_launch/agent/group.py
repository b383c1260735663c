"""When the ranks of one host are ended, and how: (state, event) -> effects, and nothing else.

Three reasons to stop (a rank failed, the launcher said so, the launcher is gone) and one way to
end: the processes are told, given a grace, killed, and it is over when no child is left.
"""

import signal
from typing import Dict, List, NamedTuple, Optional, Set, Union

#: What a finished job's stragglers get to end by themselves (the `tee` of a `> >(tee log)`).
LINGER_S = 0.5
#: What the kernel gets to end killed processes before we name them and leave.
UNKILLABLE_S = 5.0
#: Signals that ask a process to end.
ENDING = frozenset((signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL))


class Tell(NamedTuple):
    """Signal every rank's process group, but those of `spare`, and all strays of the job."""

    signum: int
    spare: "frozenset[int]" = frozenset()


class Kill(NamedTuple):
    """SIGKILL to every process below the agent."""


class Leave(NamedTuple):
    """It is over: nothing is left, or `unkillable` says that something is."""

    unkillable: bool


Effect = Union[Tell, Kill, Leave]


class Group:
    """The ranks of one host, as far as their life and death go.

    Times (`now`, `deadline`) are seconds of any steady clock. Methods return what is to be done;
    `deadline` is the next moment at which `expired` wants to be called.
    """

    def __init__(self, grace_s: float) -> None:
        self.deadline: Optional[float] = None
        self.sent: Dict[int, List[int]] = {}  # rank -> the signals it got to end it
        self._grace_s = grace_s  # after a failure, or when the launcher is gone
        self._alive: Set[int] = set()
        self._stopping = False
        self._killing = False

    def started(self, rank: int) -> None:
        self._alive.add(rank)
        self.sent[rank] = []

    def exited(self, rank: int, status: int, now: float) -> List[Effect]:
        """A rank's process ended: with an exit status, or (below 0) by a signal."""
        self._alive.discard(rank)
        if self._killing:
            return []
        if status != 0 and not self._stopping:
            return self._stop(signal.SIGTERM, now + self._grace_s, now)
        if self._alive:
            return []
        if self._stopping:
            # Strays may not know the signal that ended the ranks (`sleep &` ignores an INT).
            return [Tell(signal.SIGTERM)]
        self.deadline = now + LINGER_S
        return []

    def failed(self, rank: int, now: float) -> List[Effect]:
        """A rank has failed but JAX holds up its exit: stop the others, let it finish its own."""
        if self._stopping or rank not in self._alive:
            return []
        return self._stop(signal.SIGTERM, now + self._grace_s, now, frozenset([rank]))

    def stop(self, signum: int, grace_s: float, now: float) -> List[Effect]:
        """End all ranks: `signum` now, SIGKILL after `grace_s`. A later stop can only hasten."""
        return self._stop(signum, now + grace_s, now)

    def abandon(self, now: float) -> List[Effect]:
        """The launcher is gone, or somebody wants the agent gone."""
        return self._stop(signal.SIGTERM, now + self._grace_s, now)

    def expired(self, now: float) -> List[Effect]:
        """Act if `deadline` has come."""
        if self.deadline is None or now < self.deadline:
            return []
        if self._killing:
            self.deadline = None
            return [Leave(unkillable=True)]
        if self._stopping:
            return self._kill(now)
        return self._stop(signal.SIGTERM, now + self._grace_s, now)  # stragglers of a good end

    def child_gone(self) -> List[Effect]:
        """Some process below us ended; while killing, its children are ours to kill now."""
        return [Kill()] if self._killing else []

    def childless(self) -> List[Effect]:
        """No process is left below us."""
        self.deadline = None
        return [Leave(unkillable=False)]

    def _stop(
        self, signum: int, deadline: float, now: float, spare: "frozenset[int]" = frozenset()
    ) -> List[Effect]:
        if self._killing:
            return []
        again, self._stopping = self._stopping, True
        self.deadline = min(deadline, self.deadline) if again and self.deadline else deadline
        if deadline <= now:
            return self._kill(now)
        if again:
            return []
        for rank in self._alive - spare:
            self.sent[rank].append(signum)
        return [Tell(signum, spare)]

    def _kill(self, now: float) -> List[Effect]:
        self._killing = True
        self.deadline = now + UNKILLABLE_S
        for rank in self._alive:
            self.sent[rank].append(signal.SIGKILL)
        return [Kill()]

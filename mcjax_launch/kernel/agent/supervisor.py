"""When the ranks of one host are ended, and how: (state, event) -> effects, and nothing else.

Three reasons to stop (a rank failed, the launcher said so, the launcher is gone) and one way to
end: the processes are asked to end, given a grace, killed, and it is over when no child is left.
"""

from __future__ import annotations

import signal

from ..wire.messages import ALIKE_S
from ..wire.value import Value

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from collections.abc import Callable, Collection

#: What a finished job's stragglers get to end by themselves (the `tee` of a `> >(tee log)`).
LINGER_S = 0.5
#: What the kernel gets to end killed processes before we name them; and leave, unless the launcher
#: has more patience.
UNKILLABLE_S = 5.0


class HostEffect(Value):
    """Something for the agent to do."""


class SignalRanks(HostEffect):
    """Signal every rank's process group, but those of `spare`, and all strays of the job."""

    signum: int
    spare: frozenset[int] = frozenset()


class Kill(HostEffect):
    """SIGKILL to every process below the agent."""


class KillRank(HostEffect):
    """SIGKILL to every process of one rank, whose life is over or does not end."""

    rank: int


class NameLeft(HostEffect):
    """Say which killed processes have not ended yet."""


class Leave(HostEffect):
    """It is over: nothing is left, or `unkillable` says that something is."""

    unkillable: bool


class Supervisor:
    """The ranks of one host, as far as their life and death go.

    Times (`now`, `deadline`) are seconds of any steady clock. Methods return what is to be done;
    `deadline` is when to call `expire` next.

    Args:
        grace_s: between asking the ranks to end and killing them, after a failure or without a
            launcher.
        ending: the ranks that can be seen to end by themselves: what ends the others does not end
            them. Asked only when ranks are to be ended, for it looks at each of them.
        term_grace_s: the same as `grace_s`, where somebody ends the agent.
        on_failure: as in `messages.Start`.

    """

    def __init__(
        self,
        grace_s: float,
        ending: Callable[[], Collection[int]] = lambda: (),
        term_grace_s: float = 0.0,
        on_failure: str = "stop",
    ) -> None:
        self._due: float | None = None  # when all that are left are to end, or be named
        self.sent: dict[int, list[int]] = {}  # rank -> the signals it got to end it
        self._ending = ending
        self._grace_s = grace_s  # after a failure, or when the launcher is gone
        self._term_grace_s = term_grace_s
        self._alive: set[int] = set()
        self._stopping = False
        self._killing = False
        self._settles = False  # a rank has failed: others get a moment to fail alike
        self._asked_by: int | None = None  # the signal that asks the ranks to end
        self._killed_at = 0.0
        self._patience_s = UNKILLABLE_S
        self._on_failure = on_failure
        self._failing: set[int] = set()  # have failed, and are still there; the others go on
        self._open: set[int] = set()  # have failed and ended: the launcher may start them again
        self._sweeps: dict[int, float] = {}  # when what is left of a rank that failed is killed

    @property
    def deadline(self) -> float | None:
        """When to call `expire` next."""
        times = [*self._sweeps.values(), *([] if self._due is None else [self._due])]
        return min(times, default=None)

    @property
    def stopping(self) -> bool:
        """Whether the ranks have been asked to end, or would have been."""
        return self._stopping or self._settles

    @property
    def awaits_ranks(self) -> bool:
        """Whether a rank is alive, or may be started again."""
        return bool(self._alive or self._open)

    def started(self, rank: int) -> None:
        self._alive.add(rank)
        self._open.discard(rank)
        self._sweeps.pop(rank, None)
        self.sent[rank] = []

    def exited(self, rank: int, status: int, now: float, *, alone: bool = True) -> list[HostEffect]:
        """A rank's process ended: with an exit status, or (below 0) by a signal.

        Args:
            rank: whose.
            status: its exit status.
            now: the time.
            alone: the others are ended for a failure at once; else they may be about to fail alike,
                as where their program refuses its arguments, and get a moment for that.

        """
        failed = status != 0 or rank in self._failing
        self._alive.discard(rank)
        self._failing.discard(rank)
        if self._killing:
            return []
        if failed and not self._stopping:
            if self._on_failure == "stop" and (alone or status < 0):
                return self._stop(signal.SIGTERM, now + self._grace_s, now)
            if self._on_failure == "stop":
                self._settle(now)
            else:
                self._sweeps[rank] = now + LINGER_S
            if self._on_failure == "restart":
                self._open.add(rank)
        if self.awaits_ranks:
            return []
        if self._stopping:
            # Strays may not know the signal that ended the ranks (`sleep &` ignores an INT).
            return [] if self._asked_by == signal.SIGTERM else [SignalRanks(signal.SIGTERM)]
        self._due = now + LINGER_S
        return []

    def failed(self, rank: int, now: float) -> list[HostEffect]:
        """A rank has failed but JAX holds up its exit: stop the others, let it finish its own."""
        if self._stopping or rank not in self._alive:
            return []
        if self._on_failure == "stop":
            return self._stop(signal.SIGTERM, now + self._grace_s, now, frozenset([rank]))
        self._failing.add(rank)
        self._sweeps.setdefault(rank, now + self._grace_s)
        return []

    def stop(
        self,
        signum: int,
        grace_s: float,
        now: float,
        patience_s: float = UNKILLABLE_S,
        *,
        settles: bool = False,
    ) -> list[HostEffect]:
        """End all ranks: `signum` now, SIGKILL after `grace_s`. A later stop can only hasten.

        Args:
            signum: asks them to end.
            grace_s: what they get for that.
            now: the time.
            patience_s: what the kernel gets to end what was killed. The driver of a GPU may need
                long, and what comes next on this host needs the memory.
            settles: a rank of any host has failed as others may be about to: see `exited`.

        """
        self._patience_s = patience_s
        if settles and not self._stopping:
            self._settle(now)
            return []
        if self._killing and self._due is not None:
            ends_at = max(now, self._killed_at + patience_s)
            self._due = min(self._due, ends_at)
        return self._stop(signum, now + grace_s, now, frozenset(self._failing))

    def ended_by_signal(self, now: float) -> list[HostEffect]:
        """Somebody, such as a scheduler, ends the agent by a signal."""
        self._patience_s = UNKILLABLE_S
        return self._stop(signal.SIGTERM, now + self._term_grace_s, now)

    def abandon(self, now: float) -> list[HostEffect]:
        """The launcher is gone, or somebody wants the agent gone."""
        self._patience_s = UNKILLABLE_S
        return self._stop(signal.SIGTERM, now + self._grace_s, now)

    def expire(self, now: float) -> list[HostEffect]:
        """Act if `deadline` has come."""
        swept = [rank for rank, at in self._sweeps.items() if now >= at]
        for rank in swept:
            del self._sweeps[rank]
            if rank in self._alive:
                self.sent[rank].append(signal.SIGKILL)
        return [*map(KillRank, swept), *self._expire(now)]

    def _expire(self, now: float) -> list[HostEffect]:
        if self._due is None or now < self._due:
            return []
        if self._killing:
            gives_up_at = self._killed_at + self._patience_s
            self._due = gives_up_at if now < gives_up_at else None
            return [NameLeft() if self._due is not None else Leave(unkillable=True)]
        if self._stopping:
            return self._kill(now)
        return self._stop(signal.SIGTERM, now + self._grace_s, now)  # stragglers of a good end

    def child_gone(self) -> list[HostEffect]:
        """A process below the agent ended; while killing, its orphans are to be killed as well."""
        return [Kill()] if self._killing else []

    def childless(self) -> list[HostEffect]:
        """No process is left below us."""
        if not self.sent and not self._stopping:
            return []  # nothing was started yet: what ended was a helper of the agent's own
        if self._open:
            return []  # the launcher has yet to say what becomes of those
        self._due = None
        return [Leave(unkillable=False)]

    def _settle(self, now: float) -> None:
        """Leave the ranks a moment, once, before they are asked to end."""
        if not self._settles:
            self._settles, self._due = True, now + ALIKE_S

    def _stop(
        self, signum: int, deadline: float, now: float, spare: frozenset[int] = frozenset()
    ) -> list[HostEffect]:
        if self._killing:
            return []
        again, self._stopping, self._settles = self._stopping, True, False
        self._open.clear()
        self._sweeps.clear()
        self._due = min(deadline, self._due) if again and self._due else deadline
        if deadline <= now:
            return self._kill(now)
        if again:
            return []
        self._asked_by = signum
        for rank in self._alive - spare - set(self._ending()):
            self.sent[rank].append(signum)
        return [SignalRanks(signum, spare)]

    def _kill(self, now: float) -> list[HostEffect]:
        self._killing = True
        self._killed_at = now
        self._due = now + UNKILLABLE_S
        for rank in self._alive - set(self._ending()):
            self.sent[rank].append(signal.SIGKILL)
        return [Kill()]

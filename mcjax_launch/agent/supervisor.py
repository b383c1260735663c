"""Decisions on when and how the ranks of a host are ended: (state, event) -> effects, no I/O.

The ranks are ended if a rank fails, if the launcher orders it, if a signal ends the agent, or if
the launcher is gone. A signal asks all processes to end; after a grace period they are killed. The
end is complete when no child is left.
"""

from __future__ import annotations

import signal

from ..wire.messages import ALIKE_S
from ..wire.value import Value

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from collections.abc import Callable, Collection

#: Seconds for a finished job's stragglers to end by themselves (the `tee` of a `> >(tee log)`).
LINGER_S = 0.5
#: Seconds for the kernel to end killed processes before they are named; and before the agent
#: leaves, unless the launcher has more patience.
UNKILLABLE_S = 5.0


class HostEffect(Value):
    """Action that the agent must carry out for the supervisor."""


class SignalRanks(HostEffect):
    """Signal to each rank's process group, except ranks in `spare`, and to all strays."""

    signum: int
    spare: frozenset[int] = frozenset()


class RecordLeftovers(HostEffect):
    """Record of the processes that outlive the last rank of this host, before they are ended."""


class Kill(HostEffect):
    """SIGKILL to every process below the agent."""


class KillRank(HostEffect):
    """SIGKILL to every process of a rank that has failed."""

    rank: int


class ReportUnkilled(HostEffect):
    """Report to the launcher of the killed processes that have not ended yet."""


class Leave(HostEffect):
    """End of the agent's run; `unkillable` is True if processes are left that cannot be killed."""

    unkillable: bool


class Supervisor:
    """State of a host's ranks: which of them run, have failed, and are being ended.

    Times (`now`, `deadline`) are seconds of any steady clock. Methods return effects for the agent
    to carry out.

    Args:
        grace_s: seconds between asking the ranks to end and killing them, after a failure or the
            loss of the launcher.
        ending: returns the ranks that are already ending by themselves, so that signals to them do
            not count. It is called only when ranks are ended, because it examines each of them.
        term_grace_s: the same, if a signal ends the agent.
        on_failure: "stop" or "continue", as in `messages.Start`.

    """

    def __init__(
        self,
        grace_s: float,
        ending: Callable[[], Collection[int]] = lambda: (),
        term_grace_s: float = 0.0,
        on_failure: str = "stop",
    ) -> None:
        self._due: float | None = None  # when the next step of the end is due
        self.sent: dict[int, list[int]] = {}  # rank -> the signals sent to end it
        self._ending = ending
        self._grace_s = grace_s  # after a failure, or when the launcher is gone
        self._term_grace_s = term_grace_s
        self._alive: set[int] = set()
        self._stopping = False
        self._killing = False
        self._grace_before_stop = False  # after a failure, others get a moment to fail too
        self._asked_by: int | None = None  # the signal that asks the ranks to end
        self._killed_at = 0.0
        self._patience_s = UNKILLABLE_S
        self._on_failure = on_failure
        self._failing: set[int] = set()  # ranks that have failed, and whose process still runs
        self._straggler_deadlines: dict[
            int, float
        ] = {}  # when a failed rank's processes are killed

    @property
    def deadline(self) -> float | None:
        """Time at which to call `expire` next; None if no step is planned."""
        times = [*self._straggler_deadlines.values(), *([] if self._due is None else [self._due])]
        return min(times, default=None)

    @property
    def stopping(self) -> bool:
        """True from the decision to end the ranks."""
        return self._stopping or self._grace_before_stop

    @property
    def awaits_ranks(self) -> bool:
        """True if a rank runs."""
        return bool(self._alive)

    def on_rank_start(self, rank: int) -> None:
        """Record that a rank's process has started, with no signals sent to end it."""
        self._alive.add(rank)
        self.sent[rank] = []

    def on_rank_exit(
        self, rank: int, status: int, now: float, *, alone: bool = True
    ) -> list[HostEffect]:
        """Handle the end of a rank's process.

        Args:
            rank: the rank.
            status: exit status; below 0: minus the number of the signal that ended the process.
            now: current time.
            alone: True to end the other ranks at once after a failure; False to wait a moment
                first, because they may fail in the same way (such as for bad arguments).

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
                self._delay_end(now)
            else:
                self._straggler_deadlines[rank] = now + LINGER_S
        if self.awaits_ranks:
            return []
        if self._stopping:
            # Strays may not know the signal that ended the ranks (`sleep &` ignores an INT).
            return [] if self._asked_by == signal.SIGTERM else [SignalRanks(signal.SIGTERM)]
        self._due = now + LINGER_S
        return []

    def on_early_failure(self, rank: int, now: float) -> list[HostEffect]:
        """Handle a failure reported before the process ends, because JAX delays its exit."""
        if self._stopping or rank not in self._alive:
            return []
        if self._on_failure == "stop":
            return self._stop(signal.SIGTERM, now + self._grace_s, now, frozenset([rank]))
        self._failing.add(rank)
        self._straggler_deadlines.setdefault(rank, now + self._grace_s)
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
        """End all ranks: `signum` now, SIGKILL after `grace_s`. A later stop can only hasten it.

        Args:
            signum: signal that asks the ranks to end.
            grace_s: seconds before SIGKILL.
            now: current time.
            patience_s: seconds to wait for killed processes to end, before the agent leaves. A
                GPU's driver may need long, and the next program on this host needs the memory.
            settles: wait a moment before `signum`, because a rank of some host has failed and
                other ranks may fail in the same way: see `on_rank_exit`.

        """
        self._patience_s = patience_s
        if settles and not self._stopping:
            self._delay_end(now)
            return []
        if self._killing and self._due is not None:
            ends_at = max(now, self._killed_at + patience_s)
            self._due = min(self._due, ends_at)
        return self._stop(signum, now + grace_s, now, frozenset(self._failing))

    def on_agent_signal(self, now: float) -> list[HostEffect]:
        """End all ranks, because a signal, such as a scheduler's, ends the agent."""
        self._patience_s = UNKILLABLE_S
        return self._stop(signal.SIGTERM, now + self._term_grace_s, now)

    def abandon(self, now: float) -> list[HostEffect]:
        """End all ranks, because the launcher is gone."""
        self._patience_s = UNKILLABLE_S
        return self._stop(signal.SIGTERM, now + self._grace_s, now)

    def expire(self, now: float) -> list[HostEffect]:
        """Return the effects due at `now`: ranks to kill, or the next step of the end."""
        swept = [rank for rank, at in self._straggler_deadlines.items() if now >= at]
        for rank in swept:
            del self._straggler_deadlines[rank]
            if rank in self._alive:
                self.sent[rank].append(signal.SIGKILL)
        return [*map(KillRank, swept), *self._expire(now)]

    def _expire(self, now: float) -> list[HostEffect]:
        if self._due is None or now < self._due:
            return []
        if self._killing:
            gives_up_at = self._killed_at + self._patience_s
            self._due = gives_up_at if now < gives_up_at else None
            return [ReportUnkilled() if self._due is not None else Leave(unkillable=True)]
        if self._stopping:
            return self._kill(now)
        leftovers = [] if self._grace_before_stop else [RecordLeftovers()]
        return [*leftovers, *self._stop(signal.SIGTERM, now + self._grace_s, now)]

    def on_child_end(self) -> list[HostEffect]:
        """Handle the end of a child: once killing has begun, kill the child's orphans too."""
        return [Kill()] if self._killing else []

    def on_last_child_end(self) -> list[HostEffect]:
        """Handle the end of the last process: leave."""
        if not self.sent and not self._stopping:
            return []  # no rank was started yet: only a helper of the agent has ended
        self._due = None
        return [Leave(unkillable=False)]

    def _delay_end(self, now: float) -> None:
        """Delay the ranks' end by ALIKE_S seconds, only once, so that more ranks can fail alike."""
        if not self._grace_before_stop:
            self._grace_before_stop, self._due = True, now + ALIKE_S

    def _stop(
        self, signum: int, deadline: float, now: float, spare: frozenset[int] = frozenset()
    ) -> list[HostEffect]:
        if self._killing:
            return []
        again, self._stopping, self._grace_before_stop = self._stopping, True, False
        self._straggler_deadlines.clear()
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

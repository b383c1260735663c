"""Queue of debuggers for the user's terminal: maps (event, now) to effects, without side effects.

Ranks stop in any order, and often all of them at the same line. The first that stops gets the
terminal. A debugger that only steps keeps it for a moment, so that stepping does not switch to
another rank. If it has not stopped again by then, perhaps because it needs the other ranks, the
next debugger gets the terminal.
"""

from __future__ import annotations

from mcjax_launch.features.debugging.messages import JOB_ENDS
from mcjax_launch.wire.value import Value

#: Seconds for which a debugger that steps keeps the terminal.
STEP_S = 1.0


class StoppedDebugger(Value):
    """Process of a rank that has stopped in its debugger.

    Args:
        rank: the rank.
        pid: its process id on its host.
        where: the line at which it has stopped.
        reason: why, "" for a breakpoint.

    """

    rank: int
    pid: int
    where: str
    reason: str = ""


class TerminalEffect(Value):
    """Action that the queue has decided on and the launcher carries out."""


class Grant(TerminalEffect):
    """Order to give a debugger the terminal; `again`: it kept the terminal while it stepped."""

    stopped: StoppedDebugger
    again: bool = False


class Refuse(TerminalEffect):
    """Refusal of a debugger's wish for the terminal, or for a switch to another rank's debugger.

    `passes`: the program goes on without the debugger.
    """

    stopped: StoppedDebugger
    reason: str
    passes: bool = False


class HasToWait(TerminalEffect):
    """Notice that a debugger has to wait, because another debugger has the terminal."""

    stopped: StoppedDebugger


class StillSteps(TerminalEffect):
    """Notice that another debugger gets the terminal, because this debugger's step takes long."""

    stopped: StoppedDebugger


class Reclaim(TerminalEffect):
    """Notice that no debugger needs the terminal any more."""


Effects = list[TerminalEffect]


class DebugQueue:
    """Queue of the debuggers that want the terminal, in order of arrival.

    Times (`now`, `deadline`) are seconds of any steady clock. Methods return effects.

    Attributes:
        deadline: time of the next call of `expire`; None for never.
        ended: True if the job ends, so that no debugger gets the terminal any more.
        active: the debugger that has the terminal; it steps while there is a deadline.

    """

    def __init__(self) -> None:
        self.deadline: float | None = None
        self.ended = False
        self.active: StoppedDebugger | None = None
        self._has_left = False  # the active debugger's process has gone during a step
        self._waiting: list[StoppedDebugger] = []

    def on_debugger_stop(self, stopped: StoppedDebugger) -> Effects:
        """Grant the terminal to a debugger that has stopped, or make the debugger wait."""
        if self.ended:
            return [Refuse(stopped, JOB_ENDS)]
        active = self.active
        if active is not None and active.pid == stopped.pid and active.rank == stopped.rank:
            self.deadline = None
            self.active = stopped
            return [Grant(stopped, again=True)]
        if active is None:
            return self._grant(stopped)
        self._waiting.append(stopped)
        return [HasToWait(stopped)]

    def on_debugger_resume(self, rank: int, pid: int, now: float, *, steps: bool) -> Effects:
        """Handle a debugger whose program goes on or has ended; `steps`: for a single step only."""
        if self.active is None or (self.active.rank, self.active.pid) != (rank, pid):
            self._waiting = [each for each in self._waiting if (each.rank, each.pid) != (rank, pid)]
            return []
        if steps:
            self.deadline = now + STEP_S
            return []
        if self.deadline is not None and self._waiting:  # the job may end with it: see `expire`
            self._has_left = True
            return []
        return self._grant_next()

    def on_rank_end(self, rank: int) -> Effects:
        """Remove a rank's debuggers, because all its processes have ended."""
        self._waiting = [waiting for waiting in self._waiting if waiting.rank != rank]
        return self._grant_next() if self.active is not None and self.active.rank == rank else []

    def switch_to(self, rank: int) -> Effects:
        """Give the terminal to a waiting debugger of this rank, as the user asked."""
        active = self.active
        if active is None:
            return []
        found = next((waiting for waiting in self._waiting if waiting.rank == rank), None)
        if found is None:
            return [Refuse(active, self._explain_refusal(active, rank))]
        self._waiting.remove(found)
        self._waiting.append(active)
        return self._grant(found)

    def expire(self, now: float) -> Effects:
        """Give the terminal to the next debugger, if the deadline has passed."""
        if self.deadline is None or now < self.deadline:
            return []
        if self.active is None or self._has_left or not self._waiting:
            return self._grant_next()
        return [StillSteps(self.active), *self._grant_next()]

    def end(self) -> Effects:
        """Refuse all debuggers, because the job ends."""
        self.ended = True
        refused: Effects = [Refuse(waiting, JOB_ENDS) for waiting in self._waiting]
        self._waiting = []
        return [*refused, *(self._grant_next() if self.active is not None else [])]

    def _grant_next(self) -> Effects:
        self.active, self.deadline, self._has_left = None, None, False
        if self._waiting:
            return self._grant(self._waiting.pop(0))
        return [Reclaim()]

    def _grant(self, stopped: StoppedDebugger) -> Effects:
        self.active, self.deadline, self._has_left = stopped, None, False
        return [Grant(stopped)]

    @property
    def others(self) -> tuple[int, ...]:
        """Ranks whose debuggers wait for the terminal."""
        return tuple(sorted(waiting.rank for waiting in self._waiting))

    def _explain_refusal(self, active: StoppedDebugger, rank: int) -> str:
        why = f"this is rank {rank}" if rank == active.rank else f"rank {rank} has not stopped"
        others = ", ".join(f"{waiting.rank} at {waiting.where}" for waiting in self._waiting)
        return f"{why}; stopped ranks: {others}" if others else f"{why}, nor has any other rank"

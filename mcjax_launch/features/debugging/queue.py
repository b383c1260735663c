"""Which debugger has the user's terminal: (event, now) -> effects, and nothing else.

Ranks stop in any order, and often all of them at the same line. The first one that has stopped gets
the terminal. One that only steps keeps it for a moment, so that a next line does not lead to
another rank; if it does not come back by then, as it may need the others, they are next.
"""

from __future__ import annotations

from mcjax_launch.features.debugging.messages import JOB_ENDS
from mcjax_launch.kernel.wire.value import Value

#: A debugger that steps keeps the terminal for so many seconds.
STEP_S = 1.0


class StoppedDebugger(Value):
    """A process of a rank that has stopped in its debugger.

    Args:
        rank: whose process it is.
        pid: its process id on its host.
        where: it has stopped.
        reason: why, "" for a breakpoint.

    """

    rank: int
    pid: int
    where: str
    reason: str = ""


class TerminalEffect(Value):
    """Something for the launcher to do."""


class Grant(TerminalEffect):
    """The terminal is this one's. `others` wait; `again`: it has just had it, and only stepped."""

    stopped: StoppedDebugger
    others: tuple[int, ...] = ()
    again: bool = False


class Refuse(TerminalEffect):
    """What this one wants, it cannot have."""

    stopped: StoppedDebugger
    reason: str


class HasToWait(TerminalEffect):
    """Another has the terminal: this one has to wait."""

    stopped: StoppedDebugger


class StillSteps(TerminalEffect):
    """Another one gets the terminal, since the step of this one takes long."""

    stopped: StoppedDebugger


class TakeBack(TerminalEffect):
    """No debugger needs the terminal any more."""


Effects = list[TerminalEffect]


class DebugQueue:
    """The debuggers that want the terminal, in the order in which they came.

    Times (`now`, `deadline`) are seconds of any steady clock. Methods return what is to be done.

    Attributes:
        deadline: when to call `expire` next.
        ended: the job ends, and nobody gets the terminal any more.
        active: the one that has the terminal; while there is a deadline, it steps.

    """

    def __init__(self) -> None:
        self.deadline: float | None = None
        self.ended = False
        self.active: StoppedDebugger | None = None
        self._has_left = False  # it is gone, in a step
        self._waiting: list[StoppedDebugger] = []

    def stopped(self, stopped: StoppedDebugger) -> Effects:
        """A debugger wants the terminal."""
        if self.ended:
            return [Refuse(stopped, JOB_ENDS)]
        active = self.active
        if active is not None and active.pid == stopped.pid and active.rank == stopped.rank:
            self.deadline = None
            self.active = stopped
            return [Grant(stopped, self._others, again=True)]
        if active is None:
            return self._grant(stopped)
        self._waiting.append(stopped)
        return [HasToWait(stopped)]

    def resumed(self, rank: int, pid: int, now: float, *, steps: bool) -> Effects:
        """One gives it back, or is gone."""
        if self.active is None or (self.active.rank, self.active.pid) != (rank, pid):
            self._waiting = [one for one in self._waiting if (one.rank, one.pid) != (rank, pid)]
            return []
        if steps:
            self.deadline = now + STEP_S
            return []
        if self.deadline is not None and self._waiting:  # the job may end with it: see `expire`
            self._has_left = True
            return []
        return self._next()

    def gone(self, rank: int) -> Effects:
        """All processes of a rank are gone."""
        self._waiting = [one for one in self._waiting if one.rank != rank]
        return self._next() if self.active is not None and self.active.rank == rank else []

    def switches(self, rank: int) -> Effects:
        """The user wants another rank's debugger."""
        active = self.active
        if active is None:
            return []
        found = next((one for one in self._waiting if one.rank == rank), None)
        if found is None:
            return [Refuse(active, self._why_not(active, rank))]
        self._waiting.remove(found)
        self._waiting.append(active)
        return self._grant(found)

    def expire(self, now: float) -> Effects:
        """Act, if it is time."""
        if self.deadline is None or now < self.deadline:
            return []
        if self.active is None or self._has_left or not self._waiting:
            return self._next()
        return [StillSteps(self.active), *self._next()]

    def end(self) -> Effects:
        """The job ends."""
        self.ended = True
        refused: Effects = [Refuse(one, JOB_ENDS) for one in self._waiting]
        self._waiting = []
        return [*refused, *(self._next() if self.active is not None else [])]

    def _next(self) -> Effects:
        self.active, self.deadline, self._has_left = None, None, False
        if self._waiting:
            return self._grant(self._waiting.pop(0))
        return [TakeBack()]

    def _grant(self, stopped: StoppedDebugger) -> Effects:
        self.active, self.deadline, self._has_left = stopped, None, False
        return [Grant(stopped, self._others)]

    @property
    def _others(self) -> tuple[int, ...]:
        return tuple(sorted(one.rank for one in self._waiting))

    def _why_not(self, active: StoppedDebugger, rank: int) -> str:
        why = f"this is rank {rank}" if rank == active.rank else f"rank {rank} has not stopped"
        others = ", ".join(f"{one.rank} at {one.where}" for one in self._waiting)
        return f"{why}; others have: {others}" if others else f"{why}, nor has any other"

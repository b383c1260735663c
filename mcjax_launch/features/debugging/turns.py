"""Turns of debuggers at the user's terminal; pure.

Ranks stop in any order, and often all of them at the same line. The first that stops has the
terminal until its program goes on; the others wait for their turn. A debugger that only steps keeps
it for a moment, because the step may need ranks that wait.
"""

from __future__ import annotations

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

    def is_of(self, rank: int, pid: int) -> bool:
        """Return whether it is the debugger of this process of a rank."""
        return (self.rank, self.pid) == (rank, pid)


class Turns:
    """Debuggers that want the terminal, in order of arrival.

    Times (`now`, `deadline`) are seconds of any steady clock.

    Attributes:
        active: the debugger that has the terminal; it steps while there is a deadline.
        deadline: time at which a step has taken too long; None if no debugger steps.
        has_ended: True if the job ends, so that no debugger gets the terminal any more.

    """

    def __init__(self) -> None:
        self.active: StoppedDebugger | None = None
        self.deadline: float | None = None
        self.has_ended = False
        self._waiting: list[StoppedDebugger] = []

    @property
    def waiting_ranks(self) -> tuple[int, ...]:
        """Ranks whose debuggers wait for the terminal."""
        return tuple(sorted(waiting.rank for waiting in self._waiting))

    def add(self, stopped: StoppedDebugger) -> bool:
        """Add a debugger that has stopped; return whether it has the terminal."""
        if self.active is None or self.active.is_of(stopped.rank, stopped.pid):
            self.active, self.deadline = stopped, None
            return True
        self._waiting.append(stopped)
        return False

    def resume(self, rank: int, pid: int, now: float, *, steps: bool) -> bool:
        """Record that a program goes on, or has ended; return whether a turn is over.

        Args:
            rank: the rank.
            pid: id of its process.
            now: the time.
            steps: True if the program will soon stop again.

        """
        if self.active is None or not self.active.is_of(rank, pid):
            self._waiting = [each for each in self._waiting if not each.is_of(rank, pid)]
            return False
        if steps:
            self.deadline = now + STEP_S
            return False
        # A process that ends in a step may end the job: others wait for that moment.
        return self.deadline is None or not self._waiting

    def remove(self, rank: int) -> bool:
        """Remove a rank's debuggers, whose processes have ended; return whether a turn is over."""
        self._waiting = [waiting for waiting in self._waiting if waiting.rank != rank]
        return self.active is not None and self.active.rank == rank

    def begin_next(self) -> StoppedDebugger | None:
        """Begin and return the next debugger's turn; None if no debugger waits."""
        self.active = self._waiting.pop(0) if self._waiting else None
        self.deadline = None
        return self.active

    def end(self) -> list[StoppedDebugger]:
        """End all turns, because the job ends; return the debuggers that have waited."""
        waiting, self._waiting = self._waiting, []
        self.has_ended = True
        return waiting

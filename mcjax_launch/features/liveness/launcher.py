"""Polling of main threads every few seconds, while ranks use accelerators."""

from typing import TYPE_CHECKING

from mcjax_launch.features.liveness.messages import (
    MainThreadRuns,
    MainThreadsPolled,
    PollMainThreads,
)
from mcjax_launch.journal.facts import Polled
from mcjax_launch.launcher.part import LauncherPart
from mcjax_launch.wire.messages import FromHook
from mcjax_launch.wire.timers import scale_time

if TYPE_CHECKING:
    from mcjax_launch.job.plan import Rank
    from mcjax_launch.launcher.part import JobLauncher
    from mcjax_launch.transport.connection import AgentConnection
    from mcjax_launch.wire.frames import Raw
    from mcjax_launch.wire.messages import ToLauncher

#: Seconds between two polls.
EVERY_S = scale_time(3.0)
# Number of polls within --stall-timeout.
_WITHIN_STALL = 4


class MainThreadPolls(LauncherPart):
    """Part that polls main threads, and records which have answered."""

    def __init__(self, launcher: "JobLauncher") -> None:
        super().__init__(launcher)
        self._state = launcher.state
        stall_s = launcher.job.stall_timeout
        self._every_s = EVERY_S if stall_s is None else min(EVERY_S, stall_s / _WITHIN_STALL)
        self._next_at = 0.0

    def get_variable(self, rank: "Rank") -> str:
        """Return the value of the feature's variable: a rank that has it answers polls."""
        return "answers"

    @property
    def deadline(self) -> float | None:  # type: ignore[override]
        """Time of the next poll; None while polling is of no use."""
        state = self._state
        if state.ending or state.pause.is_on:
            return None
        on_accelerators = any(run.compilations.on_accelerator for run in state.running)
        return self._next_at if on_accelerators else None

    def expire(self, now: float) -> None:
        """Poll, if the deadline has come."""
        if (deadline := self.deadline) is not None and now >= deadline:
            self._next_at = now + self._every_s
            self.launcher.pool.send_all(PollMainThreads())

    def on_message(self, link: "AgentConnection", message: "ToLauncher | Raw", now: float) -> None:
        """Record that ranks were polled, or a rank's answer."""
        match message:
            case _ if self._state.ending:
                return
            case MainThreadsPolled(ranks):
                self.launcher.journal.append(Polled(ranks))
            case FromHook(rank=rank, message=MainThreadRuns()):
                self._state.ranks[rank].main_thread.silent_since = None


PART = MainThreadPolls

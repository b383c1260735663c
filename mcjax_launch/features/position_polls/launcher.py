"""Polling of ranks' positions every few seconds, while the positions are of use."""

from functools import partial
from typing import TYPE_CHECKING

from mcjax_launch.features.position_polls.messages import PollPositions, RanksPolled, ThreadPosition
from mcjax_launch.launcher.part import LauncherPart
from mcjax_launch.runs.rank_run import RankRun, Stage
from mcjax_launch.wire.messages import FromHook
from mcjax_launch.wire.timers import scale_time

if TYPE_CHECKING:
    from mcjax_launch.job.plan import Plan, Rank
    from mcjax_launch.launcher.part import JobLauncher
    from mcjax_launch.runs.polls import PolledPosition, PositionPolls
    from mcjax_launch.transport.connection import AgentConnection
    from mcjax_launch.wire.frames import Raw
    from mcjax_launch.wire.messages import ToLauncher

#: Seconds between two polls.
EVERY_S = scale_time(3.0)
# Number of polls within --stall-timeout.
_WITHIN_STALL = 4


class PositionSampling(LauncherPart):
    """Part that polls agents for positions, and keeps the answers."""

    def __init__(self, launcher: "JobLauncher") -> None:
        super().__init__(launcher)
        self._state = launcher.state
        self._polls: PositionPolls | None = None  # None if samples are neither shown nor recorded
        stall_s = launcher.job.stall_timeout
        self._every_s = EVERY_S if stall_s is None else min(EVERY_S, stall_s / _WITHIN_STALL)
        self._next_at = 0.0

    def get_variable(self, rank: "Rank") -> str:
        """Return the value of the feature's variable: a rank that has it answers position polls."""
        return "answers"

    def on_begin(self, plan: "Plan", now: float) -> None:
        """Begin to record samples if they are shown or saved with the job's record."""
        line = self.launcher.console.status_line
        if self.launcher.job.record or (line is not None and line.is_live):
            from mcjax_launch.runs.polls import PositionPolls  # as few jobs need

            self._polls = self._state.polls = PositionPolls(len(plan.ranks))

    @property
    def deadline(self) -> float | None:  # type: ignore[override]
        """Time of the next poll; None while polling is of no use."""
        state = self._state
        if state.ending or state.pause.is_on:
            return None
        return self._next_at if self._compares or self._has_accelerators else None

    @property
    def _compares(self) -> bool:
        """True if samples are kept, and two ranks can wait for each other."""
        return self._polls is not None and self._state.initialize_calls > 1

    @property
    def _has_accelerators(self) -> bool:
        """True if a rank uses an accelerator: then polls show whether its main thread moves."""
        return any(run.compilations.on_accelerator for run in self._state.running)

    def expire(self, now: float) -> None:
        """Poll, if the deadline has come."""
        deadline = self.deadline
        if deadline is None or now < deadline:
            return
        self._next_at = now + self._every_s
        begins = self._polls is not None and self._compares and self._begin(self._polls, now)
        if begins or self._has_accelerators:
            self.launcher.pool.send_all(PollPositions())

    def _begin(self, polls: "PositionPolls", now: float) -> bool:
        """Begin a sample if at least two ranks can be compared; return whether that is so."""
        inside = {rank: run for rank, run in self._state.ranks.items() if self._is_inside(rank)}
        if len(inside) > 1:
            from mcjax_launch.diagnosis.view import Fact

            polls.begin(now, [rank for rank in inside if inside[rank].compilations.under_way])
            if (explanations := self.launcher.parts.explanations) is not None:
                explanations.on_fact(Fact.POSITIONS, now)
        return len(inside) > 1

    def _is_inside(self, rank: int) -> bool:
        return self._state.ranks[rank].reached.stage is Stage.INSIDE

    def on_message(self, link: "AgentConnection", message: "ToLauncher | Raw", now: float) -> None:
        """Record that ranks were polled, or a rank's answer."""
        if self._state.ending:
            return
        match message:
            case RanksPolled(ranks, blocked):
                self._state.record_question(ranks, now)
                if self._polls is not None:
                    asked = zip(ranks, blocked, strict=False)
                    # A rank in JAX's exit barrier no longer answers.
                    self._polls.record_question(
                        {rank: at for rank, at in asked if self._is_inside(rank)}
                    )
            case FromHook(rank=rank, message=ThreadPosition() as said):
                run = self._state.ranks[rank]
                run.main_thread.silent_since = None
                if self._polls is not None:
                    self._polls.record_answer(
                        rank, partial(classify_position, run, said.calls, said.beside)
                    )


def classify_position(run: RankRun, calls: str, beside: bool, blocked: str) -> "PolledPosition":
    """Return the activity and position of a rank's main thread at a poll.

    Args:
        run: the rank's run.
        calls: the thread's stack, in the format of a dump of stacks.
        beside: True if another thread of the rank is in JAX.
        blocked: kernel function in which the thread waited; "" if it ran.

    """
    from mcjax_launch.diagnosis.snapshots import RankSnapshot, Stack
    from mcjax_launch.runs.polls import PolledPosition, ThreadState

    seen = RankSnapshot(run, Stack(run.process_id, run.host, 0, calls, blocked=blocked))
    if not seen.frames or seen.waits_for_somebody or seen.may_serve:
        return PolledPosition(ThreadState.UNKNOWN)
    if seen.compiles:
        return PolledPosition(ThreadState.COMPILING)
    if seen.is_blocked_by_jax or (beside and seen.waits_for_a_thread):
        return PolledPosition(ThreadState.JAX)
    return PolledPosition(ThreadState.ELSEWHERE, seen.position_with_threads)


PART = PositionSampling

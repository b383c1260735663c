"""Part of the launcher that lets a job outlive the failures of ranks (--on-rank-failure)."""

from __future__ import annotations

import time
from collections.abc import Sequence

from mcjax_launch.job.hosts import Host
from mcjax_launch.journal.rank_run import RankRun, Stage, Verdict
from mcjax_launch.journal.state import RunState
from mcjax_launch.journal.stop_reasons import StopReason
from mcjax_launch.journal.summary import format_failure_report
from mcjax_launch.journal.verdict import determine_verdict
from mcjax_launch.journal.words import describe_rank_end
from mcjax_launch.launcher.part import JobLauncher, LauncherPart
from mcjax_launch.launcher.stop_policy import RankFailure
from mcjax_launch.ranks import format_ranks
from mcjax_launch.wire import messages
from mcjax_launch.wire.hook_messages import Joining

_RECOVERABILITY = 'jax.config.update("jax_enable_recoverability", True)'
# Seconds: what a rank prints about its failure may arrive after its hook's report.
_LAST_WORDS_S = 0.3


def find_obstacle(state: RunState, run: RankRun) -> str:
    """Return why the other ranks cannot continue after a rank's failure; "" if they can."""
    if state.each_alone:
        return ""
    member, call = run.membership, run.membership.call
    joined = call is not None and not member.left
    if joined and call is not None and call.process_id == 0:
        return (
            "process 0 holds JAX's coordination service, without which no other process can "
            "continue"
        )
    first = state.find_rank(0)
    if joined and first is not None and (first.is_gone or first.membership.left):
        return "process 0 has ended, and JAX's coordination service with it: let process 0 end last"
    if joined and call is not None and not call.recoverable:
        return f"the program has not enabled that: {_RECOVERABILITY} before initialize()"
    others = (other for other in state.ranks.values() if other is not run)
    if any(other.stage is Stage.JOINING for other in others):
        return "it failed before initialize(), where others wait for it"
    return ""


class Survivors(LauncherPart):
    """Part that reports ranks' failures while the other ranks go on, or ends the job."""

    def __init__(self, launcher: JobLauncher) -> None:
        super().__init__(launcher)
        self._state = launcher.state
        self._state.survives = True
        self._left: set[int] = set()  # the ranks without which the job goes on
        self._absent: list[int] = []  # the ranks that failed before they called initialize()
        self._untold: dict[int, float] = {}  # by rank: when to report its failure at the latest

    def on_exited(self, exited: messages.Exited, at: float) -> None:
        """Report a rank's end."""
        self._report(self._state.ranks[exited.rank])

    def on_from_hook(self, told: messages.FromHook, at: float) -> None:
        """End the job if a rank waits for ranks that failed before it."""
        if isinstance(told.message, Joining) and self._absent:
            self._stop_for_absent_ranks()

    def _stop_for_absent_ranks(self) -> None:
        """End the job, because a rank waits in initialize() for ranks that failed before it."""
        if not self.launcher.policy.ending:
            why = f"{format_ranks(self._absent)} failed before initialize(), where others wait"
            self._end_all(why)
            stop = self.launcher.policy.on_rank_end(RankFailure(self._absent[0]))
            self.launcher.perform(stop)

    def on_rank_failure(self, run: RankRun) -> bool:
        """Decide whether the job goes on after a rank's failure; return whether it does."""
        if self.launcher.policy.ending or not run.failed or run.after_signal:
            return False
        if run.process_id not in self._left and not self._let_go_on(run):
            return False
        if run.status is not None:  # else it may still print
            self._report(run)
        return True

    def _let_go_on(self, run: RankRun) -> bool:
        rank = run.process_id
        if run.membership.call is None:
            self._absent.append(rank)
        if why := find_obstacle(self._state, run):
            self._end_all(why)
            return False
        self._left.add(rank)
        self._untold[rank] = time.monotonic() + _LAST_WORDS_S
        return True

    def _end_all(self, why: str) -> None:
        self._state.ended_all = why
        self._state.activity.failed_at = time.monotonic()

    def on_host_loss(self, stop: StopReason, host: Host, lost: Sequence[RankRun]) -> bool:
        """Decide whether the job goes on after the loss of a host; return whether it does."""
        state = self._state
        if self.launcher.policy.ending:
            return False
        obstacles = (find_obstacle(state, run) for run in lost)
        if why := next(filter(None, obstacles), ""):
            state.ended_all = why
            return False
        for run in lost:
            run.order = state.increment_order()
        if lost:
            self._left |= {run.process_id for run in lost}
            state.host_lost = state.host_lost or stop
            ranks = format_ranks(sorted(run.process_id for run in lost))
            self._show([stop.message, f"continuing without {ranks} (--on-rank-failure)"])
        return True

    @property
    def deadline(self) -> float | None:  # type: ignore[override]
        """Time of the next report; None for none."""
        return None if self.launcher.policy.ending else min(self._untold.values(), default=None)

    def expire(self, now: float) -> None:
        """Report the failures that are due."""
        for rank in [rank for rank, at in self._untold.items() if now >= at]:
            self._report(self._state.ranks[rank])

    def _report(self, run: RankRun) -> None:
        """Report why a rank has failed, unless that has been reported."""
        console, rank = self.launcher.console, run.process_id
        # Of ranks that run alone the summary tells; none goes on without another.
        if self._untold.pop(rank, None) is None or self._state.each_alone:
            return
        console.stop_holding(rank)
        self._state.keep_output(rank)
        if determine_verdict(run) is Verdict.VICTIM:
            lines: Sequence[str] = [f"rank {rank} {describe_rank_end(run)}"]
        else:
            lines = format_failure_report(self._state, run, quoted=not console.is_on_screen(rank))
        self._show([*lines, f"continuing without rank {rank} (--on-rank-failure)"])

    def _show(self, lines: Sequence[str]) -> None:
        self.launcher.console.show_summary(lines, alarm=True)


PART = Survivors

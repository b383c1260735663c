"""Part of the launcher that explains why ranks wait, and ends jobs that are certain to hang."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from mcjax_launch.explain.announcer import Announcer
from mcjax_launch.explain.hang_watch import HangWatch, HostQuery
from mcjax_launch.explain.view import Occasion, View
from mcjax_launch.journal import stop_reasons
from mcjax_launch.journal.ending import RankFailed
from mcjax_launch.journal.facts import Finding
from mcjax_launch.journal.rank_run import Verdict
from mcjax_launch.journal.verdict import determine_verdict
from mcjax_launch.launcher.part import JobLauncher, LauncherPart
from mcjax_launch.launcher.stack_requests import select_rank_stacks
from mcjax_launch.wire import messages
from mcjax_launch.wire.hook_messages import Failed

if TYPE_CHECKING:
    from mcjax_launch.journal.facts import CameLate, GpuMemoryKnown, ProgramsDiffer, Stack
    from mcjax_launch.journal.summary import Summary
    from mcjax_launch.wire.messages import Exited, FromHook


def format_advice(left_s: float | None, shows_stacks: str) -> str:
    """Return a line of advice: how to see where a hanging job waits, and how to end it.

    Args:
        left_s: seconds until --stall-timeout ends the job; None if it is not given.
        shows_stacks: key or command that shows the stacks of all ranks; "" if there is none.

    """
    end = "--stall-timeout 10m would end a job without progress"
    if left_s is not None:
        end = f"--stall-timeout ends the job in {max(1, round(left_s))} s"
    return f"{shows_stacks} shows where all ranks are; {end}" if shows_stacks else end


class Explanations(LauncherPart):
    """Part that applies the rules of `explain/` to new facts and to idle ranks."""

    def __init__(self, launcher: JobLauncher) -> None:
        super().__init__(launcher)
        self.announcer = Announcer(launcher.state)
        self.hang = HangWatch(launcher.state, self.announcer, time.monotonic())

    @property
    def deadline(self) -> float | None:  # type: ignore[override]
        """Time at which to call `expire` next; None: never."""
        times = (self.announcer.deadline, self.hang.deadline)
        return min((at for at in times if at is not None), default=None)

    # --- facts that rules depend on ---

    def on_from_hook(self, told: FromHook, at: float) -> None:
        """Ask the rules; ask where ranks stand if this failure may be another rank's."""
        self._tell(told.message, at)
        if isinstance(told.message, Failed):
            self._look_for_others(told.rank)

    def on_exited(self, exited: Exited, at: float) -> None:
        """Ask the rules; ask where ranks stand if this end may be another rank's."""
        self._tell(exited, at)
        self._look_for_others(exited.rank)

    def on_came_late(self, fact: CameLate, at: float) -> None:
        """Ask the rules, soon."""
        self.announcer.record(fact, at)

    def on_programs_differ(self, fact: ProgramsDiffer, at: float) -> None:
        """Ask the rules, soon."""
        self.announcer.record(fact, at)

    def on_gpu_memory_known(self, fact: GpuMemoryKnown, at: float) -> None:
        """Ask the rules, soon."""
        self.announcer.record(fact, at)

    def _tell(self, fact: object, at: float) -> None:
        """Print the findings that follow from a fact, at once or later if many facts come."""
        self.announcer.record(fact, at)
        self._say(self.announcer.expire(at) or ())

    def _look_for_others(self, rank: int) -> None:
        """Ask for the ranks' positions before they are ended, if another rank is to blame."""
        run = self.launcher.state.ranks[rank]
        if not run.failed or run.after_signal:
            return
        from mcjax_launch.explain.findings.collectives import gave_up_waiting
        from mcjax_launch.explain.root_cause import ran_other_collective

        is_victim = determine_verdict(run) is Verdict.VICTIM
        if ran_other_collective(run) or (is_victim and gave_up_waiting(run)):
            self.launcher.stacks.request(self.launcher.links, self._record_late_positions)

    def _record_late_positions(self, stacks: list[Stack]) -> None:
        from mcjax_launch.explain.snapshots import make_snapshots

        for seen in make_snapshots(self.launcher.state, stacks).values():
            # The rank is ended, so no rank waits for it any longer.
            stands = seen.blocked_at if seen.is_surely_in_jax else seen.position_with_threads
            seen.run.late_position = seen.shared_compilation or stands

    def expire(self, now: float) -> None:
        """Print due findings; ask hosts for stacks or usage if the deadline has passed."""
        self._say(self.announcer.expire(now) or ())
        ask = self.hang.expire(now)
        if ask is HostQuery.STACKS:
            self.launcher.stacks.request(self.launcher.links, self._explain_hang)
        elif ask is HostQuery.USAGE:
            self.launcher.pool.send_all(messages.RequestUsage())

    def explain_stacks(self, now: float) -> Sequence[str]:
        """Return what is known about waiting ranks; advice too if they seem to hang."""
        from mcjax_launch.explain.rules import explain_limit

        return explain_limit(self.launcher.state, now, advises=self.hang.suspects(now))

    def _say(self, found: Iterable[Finding]) -> None:
        for finding in found:
            self.launcher.journal.append(finding)
            if finding.is_certain:
                self._end(finding, ())
                return
            console = self.launcher.console
            (console.say if finding.is_urgent else console.note)(finding.words)

    def _end(self, finding: Finding, others: Iterable[Finding]) -> None:
        """End the job for a certain finding; print its hint and the other findings as details."""
        from mcjax_launch.explain.rules import format_lines

        details = [*filter(None, [finding.hint]), *format_lines(others)]
        rank = finding.ranks[0] if finding.ranks else None
        stop = stop_reasons.hopeless(rank, finding.words, details, final=finding.is_final)
        self.launcher.stop(stop)

    def _explain_hang(self, stacks: list[Stack]) -> None:
        """Print findings about a hang from ranks' stacks; end the job if a finding is certain."""
        from mcjax_launch.explain.rules import format_lines

        found = self.hang.judge_stacks(select_rank_stacks(stacks), time.monotonic())
        if found is HostQuery.ALL_STACKS:
            self.launcher.stacks.request(self.launcher.links, self._explain_hang, all_threads=True)
        elif isinstance(found, list) and found:
            first, *others = found
            self.launcher.journal.append(first)
            if first.is_certain:
                self._end(first, others)
                return
            now, activity = time.monotonic(), self.launcher.state.activity
            activity.suspicion = first.words, now
            limit_s = self.launcher.job.stall_timeout
            left_s = None if limit_s is None else activity.active_at + limit_s - now
            advice = format_advice(left_s, self.launcher.front.shows_stacks)
            self.launcher.console.note("\n".join([*format_lines(found), advice]))

    def on_run_end(self, now: float) -> None:
        """Print the remaining findings before the summary."""
        self._say(self.announcer.select_pending_findings(now))

    def on_summary(self, summary: Summary) -> None:
        """Print findings about the whole attempt, unless a rank has failed."""
        from mcjax_launch.explain.rules import apply_rules

        if not isinstance(summary.ending, RankFailed):
            view = View(self.launcher.state, time.monotonic())
            self._say(apply_rules(view, Occasion.OVER))


PART = Explanations

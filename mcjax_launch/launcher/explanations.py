"""Part of the launcher that explains why ranks wait, and ends jobs that are certain to hang."""

import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from mcjax_launch.diagnosis.announcer import Announcer
from mcjax_launch.diagnosis.root_cause import RankFailed
from mcjax_launch.diagnosis.view import Fact, Finding, Occasion, View
from mcjax_launch.launcher.hang_watch import HangWatch, HostQuery
from mcjax_launch.launcher.part import JobLauncher, LauncherPart
from mcjax_launch.launcher.stack_requests import select_rank_stacks
from mcjax_launch.runs import stop_reasons
from mcjax_launch.wire import messages

if TYPE_CHECKING:
    from mcjax_launch.diagnosis.snapshots import Stack
    from mcjax_launch.diagnosis.summary import Summary


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
    """Part that applies the rules of `diagnosis/` to new facts and to idle ranks."""

    def __init__(self, launcher: JobLauncher) -> None:
        super().__init__(launcher)
        self.announcer = Announcer(launcher.state)
        self.hang = HangWatch(launcher.state, self.announcer, time.monotonic())

    @property
    def deadline(self) -> float | None:  # type: ignore[override]
        """Time at which to call `expire` next; None: never."""
        times = (self.announcer.deadline, self.hang.deadline)
        return min((at for at in times if at is not None), default=None)

    def on_rank_message(self, message: messages.FromHook | messages.Exited, now: float) -> None:
        """Record a message; print findings at once, or later if many messages arrive."""
        self.announcer.record_report(message, now)
        self._say(self.announcer.expire(now) or ())

    def on_fact(self, fact: Fact, now: float) -> None:
        """Record a new fact, and print the findings that follow from it when they are due."""
        self.announcer.record_fact(fact, now)

    def expire(self, now: float) -> None:
        """Print due findings; ask hosts for stacks or usage if the deadline has passed."""
        self._say(self.announcer.expire(now) or ())
        ask = self.hang.expire(now)
        if ask is HostQuery.STACKS:
            self.launcher.stacks.request(self.launcher.links, self._explain_hang)
        elif ask is HostQuery.USAGE:
            self.launcher.pool.send_all(messages.RequestUsage())

    def explain_stacks(self, view: View) -> Sequence[str]:
        """Return advice for ranks that seem to wait for each other."""
        from mcjax_launch.diagnosis.rules import find_advice

        return find_advice(view) if self.hang.suspects(view.now) else ()

    def _say(self, found: Iterable[Finding]) -> None:
        for finding in found:
            self.launcher.events.report_finding(finding)
            if finding.is_certain:
                self._end(finding, ())
                return
            console = self.launcher.console
            (console.say if finding.is_urgent else console.note)(finding.words)

    def _end(self, finding: Finding, others: Iterable[Finding]) -> None:
        """End the job for a certain finding; print its hint and the other findings as details."""
        from mcjax_launch.diagnosis.rules import format_lines

        details = [*filter(None, [finding.hint]), *format_lines(others)]
        rank = finding.ranks[0] if finding.ranks else None
        stop = stop_reasons.hopeless(rank, finding.words, details, final=finding.is_final)
        self.launcher.stop(stop)

    def _explain_hang(self, stacks: "list[Stack]") -> None:
        """Print findings about a hang from ranks' stacks; end the job if a finding is certain."""
        from mcjax_launch.diagnosis.rules import format_lines

        found = self.hang.judge_stacks(select_rank_stacks(stacks), time.monotonic())
        if found is HostQuery.ALL_STACKS:
            self.launcher.stacks.request(self.launcher.links, self._explain_hang, all_threads=True)
        elif isinstance(found, list) and found:
            first, *others = found
            self.launcher.events.report_finding(first)
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

    def on_summary(self, summary: "Summary", *, last: bool) -> None:
        """Print findings about the whole attempt, unless a rank has failed."""
        from mcjax_launch.diagnosis.rules import apply_rules

        if not isinstance(summary.ending, RankFailed):
            view = View(self.launcher.state, time.monotonic())
            self._say(apply_rules(view, Occasion.OVER))


PART = Explanations

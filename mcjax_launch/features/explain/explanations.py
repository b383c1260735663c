"""Part of the launcher that shows where ranks are, and ends jobs that can never go on."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from mcjax_launch.features.explain.view import Moment, View
from mcjax_launch.journal.ending import RankFailed
from mcjax_launch.journal.facts import Finding
from mcjax_launch.journal.rank_run import Verdict
from mcjax_launch.journal.stop_reasons import StopReason
from mcjax_launch.journal.verdict import determine_verdict
from mcjax_launch.launcher.part import JobLauncher, LauncherPart
from mcjax_launch.launcher.stack_requests import select_rank_stacks
from mcjax_launch.wire import exit_status
from mcjax_launch.wire.hook_messages import Failed
from mcjax_launch.wire.messages import Exited
from mcjax_launch.wire.timers import scale_time

if TYPE_CHECKING:
    from mcjax_launch.features.explain.picture import Picture
    from mcjax_launch.journal.facts import GpuMemoryKnown, OutputEnded, ProgramsDiffer, Stack
    from mcjax_launch.journal.state import RunState
    from mcjax_launch.journal.summary import Summary
    from mcjax_launch.wire.messages import Exited, FromHook


# Ranks' places are shown when nothing has moved for so long, and whenever that has doubled.
_AFTER_S = scale_time(30.0)


class Explanations(LauncherPart):
    """Part that applies the rules of `explain/` to new facts, and shows where silent ranks are.

    When nothing has moved for `_AFTER_S`, and again whenever that has doubled, all hosts are asked
    once for the ranks' stacks.
    """

    def __init__(self, launcher: JobLauncher) -> None:
        super().__init__(launcher)
        self.announcer = Announcer(launcher.state)
        self._looked_at = -math.inf
        self._told: set[object] = set()  # keys of pictures

    @property
    def deadline(self) -> float | None:  # type: ignore[override]
        """Time at which to call `expire` next; None: never."""
        times = (self.announcer.deadline, self._look_at)
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

    def on_programs_differ(self, fact: ProgramsDiffer, at: float) -> None:
        """Ask the rules, soon."""
        self.announcer.record(fact, at)

    def on_gpu_memory_known(self, fact: GpuMemoryKnown, at: float) -> None:
        """Ask the rules, soon."""
        self.announcer.record(fact, at)

    def _tell(self, fact: object, at: float) -> None:
        """Print the findings that follow from a fact, at once or later if many facts come."""
        self.announcer.record(fact, at)
        self._say(self.announcer.expire(at))

    def _look_for_others(self, rank: int) -> None:
        """Ask for the ranks' positions before they are ended, if another rank is to blame."""
        run = self.launcher.state.ranks[rank]
        if not run.failed or run.after_signal:
            return
        from mcjax_launch.features.explain.jax_messages.lost_peer import says_timed_out
        from mcjax_launch.features.explain.victims import get_failure_text, ran_other_collective

        is_victim = determine_verdict(run) is Verdict.VICTIM
        if ran_other_collective(run) or (is_victim and says_timed_out(get_failure_text(run))):
            self.launcher.stacks.request(self.launcher.links, self._record_late_positions)

    def _record_late_positions(self, stacks: list[Stack]) -> None:
        from mcjax_launch.features.explain.picture import find_last_place, select_stacks

        for rank, stack in select_stacks(stacks).items():
            run = self.launcher.state.ranks[rank]
            run.late_position = find_last_place(run, stack).late_position

    # --- where the ranks are ---

    @property
    def _look_at(self) -> float | None:
        """Time at which to look where the ranks are, unless something moves; None for never."""
        state = self.launcher.state
        if not state.initialize_calls or state.num_processes < 2 or state.ending:
            return None
        if state.pause.is_on or state.activity.is_idle:
            return None
        moved_at, after_s = state.activity.active_at, _AFTER_S
        while moved_at + after_s <= self._looked_at:
            after_s *= 2
        return moved_at + after_s

    def expire(self, now: float) -> None:
        """Print due findings; ask hosts for stacks if nothing has moved for long."""
        self._say(self.announcer.expire(now))
        if (look_at := self._look_at) is not None and now >= look_at:
            self._looked_at = now
            self.launcher.stacks.request(self.launcher.links, self._show_picture)

    def _show_picture(self, stacks: list[Stack]) -> None:
        """Print where the ranks are, unless all are at one place or that has been told before."""
        from mcjax_launch.features.explain.rules import (
            apply_rules,
            describe_other_compilation,
            format_lines,
        )

        state, now = self.launcher.state, time.monotonic()
        if state.ending or state.activity.active_at > self._looked_at:
            return
        picture = self._record_picture(stacks)
        is_usual = picture.is_one_place and not describe_other_compilation(state)
        if is_usual or picture.key in self._told:
            return
        self._told.add(picture.key)
        found = apply_rules(View(state, now, late=picture.late), Moment.HANG)
        news = self.announcer.select_news(found)
        self.launcher.console.note("\n".join([*picture.format_lines(now), *format_lines(news)]))

    def _record_picture(self, stacks: list[Stack]) -> Picture:
        """Record where the ranks are, for the summary and for events."""
        from mcjax_launch.features.explain.picture import make_picture

        state = self.launcher.state
        picture = make_picture(state, select_rank_stacks(stacks))
        state.picture = picture.sentence
        finding = Finding(picture.sentence, picture.late, since=picture.since)
        self.launcher.journal.append(finding)
        return picture

    def record_stacks(self, stacks: list[Stack]) -> None:
        """Record where the ranks are when a limit ends the job."""
        if self.launcher.state.initialize_calls or self.launcher.job.start_timeout is not None:
            self._record_picture(stacks)

    def explain_stacks(self, stacks: list[Stack]) -> Sequence[str]:
        """Return lines to print below stacks that the user has requested."""
        from mcjax_launch.features.explain.picture import make_picture
        from mcjax_launch.features.explain.rules import explain_limit

        state = self.launcher.state
        lines = explain_limit(state, time.monotonic())
        if not state.initialize_calls:
            return lines
        return [make_picture(state, select_rank_stacks(stacks)).sentence, *lines]

    def _say(self, found: Iterable[Finding]) -> None:
        for finding in found:
            self.launcher.journal.append(finding)
            if finding.is_certain:
                self._end(finding)
                return
            console = self.launcher.console
            (console.say if finding.is_urgent else console.note)(finding.words)

    def _end(self, finding: Finding) -> None:
        """End the job for a certain finding."""
        details = [*filter(None, [finding.hint])]
        rank = finding.ranks[0] if finding.ranks else None
        self.launcher.stop(StopReason(finding.words, exit_status.FAILED, tuple(details), rank=rank))

    def on_output_ended(self, _: OutputEnded, at: float) -> None:
        """Print the remaining findings before the summary."""
        self._say(self.announcer.ask_last(at))

    def on_summary(self, summary: Summary) -> None:
        """Print findings about the whole attempt, unless a rank has failed."""
        from mcjax_launch.features.explain.rules import apply_rules

        if not isinstance(summary.ending, RankFailed):
            view = View(self.launcher.state, time.monotonic())
            self._say(apply_rules(view, Moment.OVER))


PART = Explanations

# --- selection of findings to print while a job runs, each once ---

# Pause between two passes over the rules, per rank, so that passes take little of the time.
_PAUSE_S = 5e-4
# With so few there is no pause: a call that fails at once is judged before its failure.
_FEW_RANKS = 50


class Announcer:
    """Selector of the findings to print: evaluates the rules and omits findings already printed.

    A pass over the rules takes time in proportion to the number of ranks. So with many ranks there
    are only a few passes per second, however much becomes known in between.

    Args:
        state: state of the run.

    """

    def __init__(self, state: RunState) -> None:
        self._state = state
        self._news: set[type | Moment] = set()
        self._passed_at = -math.inf
        self._next_at = math.inf

    @property
    def deadline(self) -> float | None:
        """Time of the next `expire`, in time.monotonic's seconds; None while nothing is due."""
        return self._next_at if self._next_at < math.inf and not self._state.ending else None

    def record(self, known: object, now: float) -> None:
        """Record that a fact has become known; it may schedule a pass over the rules."""
        if self._state.ending or (isinstance(known, Exited) and not self._state.initialize_calls):
            return  # so most jobs without JAX never load the rules
        from mcjax_launch.features.explain.rules import list_facts

        if type(known) in list_facts():
            self._news.add(type(known))
            ranks = len(self._state.ranks)
            soon = self._passed_at + (_PAUSE_S * ranks if ranks > _FEW_RANKS else 0.0)
            self._next_at = min(self._next_at, max(now, soon))

    def expire(self, now: float) -> list[Finding]:
        """Return the findings to print now."""
        deadline = self.deadline
        if deadline is None or now < deadline:
            return []
        self._next_at, self._passed_at = math.inf, now
        return self._ask(now) if self._state.running else []  # else the summary is next

    def ask_last(self, now: float) -> list[Finding]:
        """Return the findings that follow from facts of which a pass has not come, at the end."""
        return self._ask(now) if self._news and not self._state.ending else []

    def _ask(self, now: float) -> list[Finding]:
        from mcjax_launch.features.explain.rules import apply_rules

        news, self._news = self._news, set()
        return self.select_news(apply_rules(View(self._state, now), *news))

    def select_news(self, found: Iterable[Finding]) -> list[Finding]:
        """Return the findings that have not been told; all that are certain, which end the job."""
        told = self._state.told
        return [each for each in found if each.is_certain or each.words not in told]

"""Search for ranks that wait for other ranks, reported at ever longer intervals.

The job is ended only if its ranks wait for ever: see `HangWatch.judge_stacks`.

A job whose ranks print or report something moves. When the ranks are silent, each host is asked
for its ranks' usage, and again later: a main thread that has not moved in between stands still
(accelerators: see below). Only then is every rank asked for its stack, which shows which ranks wait
for which. A job that moves in silence is polled at ever longer intervals, and a job that does not
use JAX is not polled.

On accelerators Python, not processor time, shows whether a rank moves: NCCL spins while it waits,
also on the thread that has called it, so a rank that hangs is as busy as a rank that computes.
There a main thread that was asked for its position and has run no Python since has not moved
(`MainThread`). A step that takes long looks the same as a hang, unless the GPU's driver tells that
the GPU works (`RankGpus`): then the rank moves.
"""

import math
from collections.abc import Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING

from mcjax_launch.explain.announcer import AFTER_S, Announcer
from mcjax_launch.explain.view import Occasion, Positions, View
from mcjax_launch.journal.facts import Finding
from mcjax_launch.journal.rank_run import BUSY, RankRun, Stage
from mcjax_launch.journal.state import IDLE_S, RunState

if TYPE_CHECKING:
    from mcjax_launch.explain.waits.wait import Wait
    from mcjax_launch.journal.facts import Stack

# As parts of AFTER_S: the silence after which hosts are polled, the pause between two polls, and
# the time that hosts have for their answers.
_SILENCE, _PAUSE, _ANSWER = 1 / 6, 1 / 3, 1 / 60
_LEAST_ANSWER_S = 0.1
# As a multiple of AFTER_S: the longest pause between two polls of a silent job that moves.
_SELDOM = 4.0
# A main thread that stands still uses less processor time than this between two polls, in seconds,
# and waits no more often. It needs some to answer a request for its stack.
_STILL_S, _STILL_WAITS = 0.01, 3
# A rank that only sends heartbeats uses less of a core than this, measured by coarse clocks.
_IDLE, _LEAST_IDLE_S = 0.01, 0.02


class HostQuery(Enum):
    """Request that the hosts should get."""

    USAGE = auto()
    STACKS = auto()
    ALL_STACKS = auto()  # of all threads


class _CpuBaseline:
    """Usage of a rank's main thread at a poll, and the time since which the thread stands still.

    Attributes:
        computes: True if its GPU works, or it uses the CPU although its main thread stands still.
        polls: True if the rank uses an accelerator and its main thread is busy.
        idles: True if the rank has used no more CPU time than heartbeats need.

    """

    computes = polls = idles = False

    def __init__(self, run: RankRun, before: "_CpuBaseline | None") -> None:
        usage = run.usage
        self.at, self.cpu_s = usage.samples[-1].at, usage.samples[-1].cpu_s
        self.main_s, self.main_waits = usage.main_s, usage.main_waits
        self.since = self.at
        if run.usage.gpus.works:
            self.computes = True
        elif run.answers_for_progress:
            silent_since = run.main_thread.silent_since
            self.since = self.at if silent_since is None else silent_since
            self.polls = before is not None and self.main_s - before.main_s > _STILL_S
        elif before is not None:
            used_s, elapsed_s = self.cpu_s - before.cpu_s, self.at - before.at
            self.idles = used_s <= max(_IDLE * elapsed_s, _LEAST_IDLE_S)
            if self._is_still_since(before):
                self.since = before.since
                self.computes = not run.compilations.on_accelerator and used_s > BUSY * elapsed_s

    def _is_still_since(self, before: "_CpuBaseline") -> bool:
        used_s, waits = self.main_s - before.main_s, self.main_waits - before.main_waits
        return used_s <= _STILL_S and waits <= _STILL_WAITS


class HangWatch:
    """Search for ranks that wait for other ranks.

    Times are in time.monotonic's seconds.

    Args:
        state: state of the attempt.
        announcer: record of the findings that have been printed.
        now: start time of the ranks.

    """

    def __init__(self, state: RunState, announcer: Announcer, now: float) -> None:
        self._state = state
        self._announcer = announcer
        self._interval_s = AFTER_S
        self._next_at = now + AFTER_S
        self._polled_at = self._stacks_at = -math.inf
        self._next_stacks_at = -math.inf
        self._asked_at: float | None = None  # for usage
        self._awaits_stacks = False
        self._is_over = False
        self._deadlock: object = None  # the key of a suspected one, until all threads are known
        self._baselines: dict[int, _CpuBaseline] = {}
        # At the last poll: places of the wait and switch counts of threads there; and since when.
        self._threads_at: tuple[tuple[str, ...], ...] = ()
        self._threads_since = 0.0

    @property
    def deadline(self) -> float | None:
        """Time of the next call of `expire`.

        None while no rank can wait for another or the job is paused or idle, while stacks are
        awaited, and after the search is over.
        """
        state = self._state
        if not state.initialize_calls or state.num_processes < 2 or state.pause.is_on:
            return None
        if self._awaits_stacks or self._is_over or state.activity.is_idle:
            return None
        if self._asked_at is not None or state.activity.heard_at <= self._polled_at:
            return self._next_at
        silent_at = state.activity.heard_at + AFTER_S * _SILENCE
        return min(self._next_at, max(silent_at, self._polled_at + AFTER_S * _PAUSE))

    def expire(self, now: float) -> HostQuery | None:
        """Return the request that hosts should get now; None for none."""
        deadline = self.deadline
        if deadline is None or now < deadline:
            return None
        if self._state.ending:
            self._is_over = True
            return None
        if self._asked_at is not None:
            return self._judge(self._asked_at, now)
        self._asked_at = now
        self._next_at = now + max(AFTER_S * _ANSWER, _LEAST_ANSWER_S)
        return HostQuery.USAGE

    def suspects(self, now: float) -> bool:
        """Return whether a rank has waited, or stood still, long enough to suspect a hang."""
        return (
            now - max(self._find_wait_start(now), self._find_compilation_end()) >= AFTER_S * _PAUSE
        )

    def _find_wait_start(self, now: float) -> float:
        """Return since when a rank has waited or stood still, the earliest; `now` if none does."""
        reached = (run.reached for run in self._state.ranks.values())
        waiting = [stage.since for stage in reached if stage.waits_for_others]
        known = [since for since in waiting if since is not None]
        return min([*known, *self._still.values(), *self._idle_since.values()], default=now)

    @property
    def _still(self) -> dict[int, float]:
        """Time since which each rank's main thread has not moved; only ranks that stand still."""
        return {
            rank: baseline.since
            for rank, baseline in self._baselines.items()
            if baseline.since < baseline.at
        }

    @property
    def _idle_since(self) -> dict[int, float]:
        """Time of the latest program of each rank that has used no processor since then."""
        if self._state.sequences is None:
            return {}
        launched = self._state.sequences.list_latest()
        idle = (rank for rank, baseline in self._baselines.items() if baseline.idles)
        return {rank: launched[rank] for rank in idle if rank in launched}

    def _judge(self, asked_at: float, now: float) -> HostQuery | None:
        """Judge the reported usage: ask for stacks if a rank seems to wait, else poll later."""
        if self._state.activity.heard_at > self._polled_at:
            self._interval_s = AFTER_S
        self._asked_at, self._polled_at = None, now
        self._record_usage(asked_at)
        # Earlier, ranks may have waited for a debugger, or for a compiler.
        first = max(
            self._find_wait_start(now), self._state.pause.ended_at, self._find_compilation_end()
        )
        if first >= asked_at:  # no rank stands still
            self._poll_later(now)
        elif now < first + self._patience_s:
            self._next_at = first + self._patience_s
        elif now < self._next_stacks_at and first <= self._stacks_at:
            self._next_at = self._next_stacks_at  # this wait has been judged already
        else:
            self._awaits_stacks = True
            return HostQuery.STACKS
        return None

    @property
    def _patience_s(self) -> float:
        """Seconds that ranks may stand still: few if a rank is gone, which will never come."""
        return AFTER_S * _SILENCE if self._misses_rank else AFTER_S

    @property
    def _misses_rank(self) -> bool:
        """True if a rank has ended without a failure, while JAX counts on it."""
        return any(run.vanished for run in self._state.ranks.values())

    def _find_compilation_end(self) -> float:
        """Return when a rank last finished a long compilation; 0 if none did.

        A program that took long to compile may also run for long.
        """
        spent = (run.compilations for run in self._state.running)
        long = AFTER_S * _SILENCE
        return max(
            (each.ended_at for each in spent if each.ended_at - each.began_at > long), default=0
        )

    def _record_usage(self, asked_at: float) -> None:
        """Record the reported usage of the ranks that have joined."""
        baselines = {}
        for run in self._state.running:
            samples, rank = run.usage.samples, run.process_id
            if run.reached.is_through and samples and samples[-1].at >= asked_at:
                baselines[rank] = _CpuBaseline(run, self._baselines.get(rank))
        self._baselines = baselines

    def _poll_later(self, now: float) -> None:
        self._next_at = now + (self._patience_s if self._misses_rank else self._interval_s)
        self._interval_s = min(2 * self._interval_s, _SELDOM * AFTER_S)

    def judge_stacks(self, stacks: "Sequence[Stack]", now: float) -> "list[Finding] | HostQuery":
        """Judge from the ranks' stacks whether ranks wait, and for which ranks.

        Args:
            stacks: stacks of main threads, or of all threads if the last call returned ALL_STACKS.
            now: time, in time.monotonic's seconds.

        Returns:
            the findings to print; ALL_STACKS to ask for all threads if the wait seems endless.

        """
        self._awaits_stacks = False
        self._polled_at = self._stacks_at = now
        from mcjax_launch.explain.waits.wait import correct_wait, find_wait

        view = self._make_view(stacks, now)
        self._record_positions(view)
        wait, suspected = find_wait(view), self._deadlock
        self._deadlock = None
        if wait is None or view.positions is None:
            self._threads_at = ()
            self._poll_later(now)
            self._next_at = min(self._next_at, self._compute_compile_deadline(now))
            self._next_stacks_at = self._next_at
            return self._find_busy_gpus(view)
        if wait.is_deadlock and self._has_lasted(wait, now):
            if suspected is None:
                self._deadlock, self._awaits_stacks = wait.key, True
                return HostQuery.ALL_STACKS
            view.positions = view.positions.copy_with(is_whole=wait.key == suspected)
        if wait.threads:
            since = max(wait.since, self._track_wait_threads(wait, now))
            correct_wait(view, wait.copy_with(since=since))
        return self._judge_view(view)

    def _make_view(self, stacks: "Sequence[Stack]", now: float) -> View:
        """Return the view to judge; without positions if the ranks may be fine."""
        if self._state.ending or now < self._find_compilation_end() + AFTER_S:
            return View(self._state, now)
        computing = {rank for rank, baseline in self._baselines.items() if baseline.computes}
        polling = {rank for rank, baseline in self._baselines.items() if baseline.polls}
        positions = Positions(stacks, self._still, computing, polling, self._idle_since)
        return View(self._state, now, positions)

    def _record_positions(self, view: View) -> None:
        """Record positions of ranks for which other ranks wait in initialize()."""
        if view.positions is None or not view.joining:
            return
        from mcjax_launch.explain.snapshots import make_snapshots

        for seen in make_snapshots(self._state, view.positions.stacks).values():
            if seen.reached.stage is Stage.ABSENT:
                seen.run.position_before_call = seen.position_with_threads

    def _find_busy_gpus(self, view: View) -> list[Finding]:
        """Return a finding on GPUs that work while others wait for them, if it is due."""
        if not any(run.usage.gpus.latest for run in self._state.running):
            return []
        from mcjax_launch.explain.findings.gpus import some_work

        return self._announcer.select_news(some_work(view), view.now)

    def _judge_view(self, view: View) -> list[Finding]:
        from mcjax_launch.explain.rules import apply_rules

        found = list(apply_rules(view, Occasion.HANG))
        if not found:  # a rule has failed
            self._poll_later(view.now)
            return []
        is_due = self._announcer.select_news(found[:1], view.now)
        self._is_over = found[0].is_certain
        self._next_at = self._next_stacks_at = self._announcer.compute_next_print_time(found[0])
        return [*is_due, *self._announcer.select_news(found[1:], view.now)] if is_due else []

    def _track_wait_threads(self, wait: "Wait", now: float) -> float:
        """Return the time since which a wait's threads have been the same in each poll."""
        threads_at = wait.key, wait.threads
        if threads_at != self._threads_at:
            self._threads_at, self._threads_since = threads_at, now
        return self._threads_since

    def _has_lasted(self, wait: "Wait", now: float) -> bool:
        """Return whether no rank has moved for long, not even in C++ code."""
        idle = [rank for rank, baseline in self._baselines.items() if baseline.idles]
        everybody = (run.process_id for run in self._state.running)
        return now - wait.since >= self._patience_s and set(everybody) <= set(idle)

    def _compute_compile_deadline(self, now: float) -> float:
        """Return when the next idle compilation reaches its limit; infinity if none will."""
        runs = ((run.compilations, self._state.pause.ended_at) for run in self._state.running)
        idle = [spent.compute_idle_s(since) for spent, since in runs]
        due = (now - idle_s + IDLE_S + 1 for idle_s in idle if idle_s > 0)
        return min((at for at in due if at > now), default=math.inf)

"""Ranks that wait for others: told while that lasts, ever more seldom.

A job is ended only if its ranks wait for ever: see `stacks_came`.

A job whose ranks print, or report something, moves. Where they have become silent, each host is
asked what its ranks use, and again later: a main thread that has not moved in between stands still
(below: those on accelerators).
Only then is every rank asked for its stack, which tells who waits for whom. A job that moves in
silence is looked at ever more seldom, and one that does not use JAX never.

On accelerators Python tells whether a rank moves, not processor time: NCCL spins while it waits,
also on the thread that has called it, so there a rank that hangs is as busy as one that computes.
A main thread that has been asked where it is, and has run no Python since, has not moved
(`MainThread`). So a step has not, either: nobody can tell a long one from a hang.
"""

import math
from collections.abc import Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING

from mcjax_launch.diagnosis.announcer import AFTER_S, Announcer
from mcjax_launch.diagnosis.view import Finding, Occasion, Positions, View
from mcjax_launch.runs.rank_run import BUSY, RankRun, Stage
from mcjax_launch.runs.state import IDLE_S, RunState

if TYPE_CHECKING:
    from mcjax_launch.diagnosis.findings.waits import Wait
    from mcjax_launch.diagnosis.sightings import Stack

# In parts of that: the silence that leads to a look, the time between two looks, and what hosts
# have for their answers.
_SILENCE, _PAUSE, _ANSWER = 1 / 6, 1 / 3, 1 / 60
_LEAST_ANSWER_S = 0.1
# In multiples: the longest time between two looks at a silent job that moves.
_SELDOM = 4.0
# A main thread that stands still uses less than this between two looks, in seconds of processor
# time, and waits no more often: it may have been asked for its stack.
_STILL_S, _STILL_WAITS = 0.01, 3
# A rank that does nothing but send heartbeats uses less of a core than this; clocks are coarse.
_IDLE, _LEAST_IDLE_S = 0.01, 0.02


class Ask(Enum):
    """What the hosts are to be asked."""

    USAGE = auto()
    STACKS = auto()
    ALL_STACKS = auto()  # of all threads


class _Mark:
    """What a rank's main thread has used, and since when it has stood still, at the latest."""

    computes = polls = idles = False

    def __init__(self, run: RankRun, before: "_Mark | None") -> None:
        usage = run.usage
        self.at, self.cpu_s = usage.samples[-1].at, usage.samples[-1].cpu_s
        self.main_s, self.main_waits = usage.main_s, usage.main_waits
        self.since = self.at
        if run.answers_for_progress:
            silent_since = run.main_thread.silent_since
            self.since = self.at if silent_since is None else silent_since
            self.polls = before is not None and self.main_s - before.main_s > _STILL_S
        elif before is not None and self._is_still_since(before):
            self.since = before.since
            used_s, most_s = self.cpu_s - before.cpu_s, _IDLE * (self.at - before.at)
            self.idles = used_s <= max(most_s, _LEAST_IDLE_S)
            spins = run.compilations.on_accelerator
            self.computes = not spins and self.cpu_s - before.cpu_s > BUSY * (self.at - before.at)

    def _is_still_since(self, before: "_Mark") -> bool:
        used_s, waits = self.main_s - before.main_s, self.main_waits - before.main_waits
        return used_s <= _STILL_S and waits <= _STILL_WAITS


class HangWatch:
    """Looks for ranks that wait for others.

    Times are in time.monotonic's seconds.

    Args:
        state: of the run.
        announcer: knows what has been said.
        now: when the ranks are started.
        stall_timeout: of the job.
        shows_stacks: what shows the stacks of all ranks, in words; "" if nothing does.

    """

    def __init__(
        self,
        state: RunState,
        announcer: Announcer,
        now: float,
        stall_timeout: float | None,
        shows_stacks: str = "",
    ) -> None:
        self._state = state
        self._announcer = announcer
        self._stall_timeout = stall_timeout
        self._shows_stacks = shows_stacks
        self._interval_s = AFTER_S
        self._next_at = now + AFTER_S
        self._looked_at = self._stacks_at = -math.inf
        self._next_stacks_at = -math.inf
        self._asked_at: float | None = None  # what ranks use
        self._awaits_stacks = False
        self._is_over = False
        self._deadlock: object = None  # its key, until it is known what all threads do
        self._marks: dict[int, _Mark] = {}
        # The places at the last look, the switches of threads that were there, and since when.
        self._threads_at: tuple[tuple[str, ...], ...] = ()
        self._threads_since = 0.0

    @property
    def deadline(self) -> float | None:
        """When to call `expire` again; None while nobody can wait for anybody."""
        state = self._state
        if not state.initialize_calls or state.num_processes < 2 or state.pause.is_on:
            return None
        if self._awaits_stacks or self._is_over:
            return None
        if self._asked_at is not None or state.activity.heard_at <= self._looked_at:
            return self._next_at
        silent_at = state.activity.heard_at + AFTER_S * _SILENCE
        return min(self._next_at, max(silent_at, self._looked_at + AFTER_S * _PAUSE))

    def expire(self, now: float) -> Ask | None:
        """What the hosts are to be asked now, if anything."""
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
        return Ask.USAGE

    def suspects(self, now: float) -> bool:
        """Whether ranks have waited, or stood still, for so long that something may hang."""
        return now - max(self._first_at(now), self._compiled_at()) >= AFTER_S * _PAUSE

    def _first_at(self, now: float) -> float:
        """Since when the first rank has waited, or stood still; `now` where none does."""
        places = (run.place for run in self._state.ranks.values())
        waiting = [place.since for place in places if place.waits_for_others]
        known = [since for since in waiting if since is not None]
        return min([*known, *self._still.values()], default=now)

    @property
    def _still(self) -> dict[int, float]:
        """Since when each rank has stood still whose main thread has not moved."""
        return {rank: mark.since for rank, mark in self._marks.items() if mark.since < mark.at}

    def _judge(self, asked_at: float, now: float) -> Ask | None:
        """Hosts have answered what their ranks use: ask for stacks, or look again later."""
        if self._state.activity.heard_at > self._looked_at:
            self._interval_s = AFTER_S
        self._asked_at, self._looked_at = None, now
        self._mark(asked_at)
        # Until then one waited for a debugger, or for a compiler.
        first = max(self._first_at(now), self._state.pause.ended_at, self._compiled_at())
        if first >= asked_at:  # nobody stands still
            self._look_later(now)
        elif now < first + AFTER_S:
            self._next_at = first + AFTER_S
        elif now < self._next_stacks_at and first <= self._stacks_at:
            self._next_at = self._next_stacks_at  # it is known already
        else:
            self._awaits_stacks = True
            return Ask.STACKS
        return None

    def _compiled_at(self) -> float:
        """When a rank had last compiled for long: what it compiled may run for long as well."""
        spent = (run.compilations for run in self._state.running)
        long = AFTER_S * _SILENCE
        return max((one.ended_at for one in spent if one.ended_at - one.began_at > long), default=0)

    def _mark(self, asked_at: float) -> None:
        """Note what the ranks have used that have joined."""
        marks = {}
        for run in self._state.running:
            samples, rank = run.usage.samples, run.process_id
            if run.place.is_through and samples and samples[-1].at >= asked_at:
                marks[rank] = _Mark(run, self._marks.get(rank))
        self._marks = marks

    def _look_later(self, now: float) -> None:
        self._next_at = now + self._interval_s
        self._interval_s = min(2 * self._interval_s, _SELDOM * AFTER_S)

    def stacks_came(self, stacks: "Sequence[Stack]", now: float) -> "list[Finding] | Ask":
        """Judge where ranks are.

        Args:
            stacks: of main threads, or of all if the last call returned ALL_STACKS.
            now: in time.monotonic's seconds.

        Returns:
            what is to be said; ALL_STACKS if the ranks seem to wait for ever.

        """
        self._awaits_stacks = False
        self._looked_at = self._stacks_at = now
        view = self._view(stacks, now)
        self._record_positions(view)
        wait, suspected = view.wait, self._deadlock
        self._deadlock = None
        if wait is None or view.positions is None:
            self._threads_at = ()
            self._look_later(now)
            self._next_at = min(self._next_at, self._compiles_too_long_at(now))
            self._next_stacks_at = self._next_at
            return []
        if wait.is_deadlock and self._has_lasted(wait, now):
            if suspected is None:
                self._deadlock, self._awaits_stacks = wait.key, True
                return Ask.ALL_STACKS
            view.positions = view.positions.replaced(is_whole=wait.key == suspected)
        if wait.threads:
            view.wait = wait.replaced(since=max(wait.since, self._seen_since(wait, now)))
        return self._findings(view)

    def _view(self, stacks: "Sequence[Stack]", now: float) -> View:
        """What is known of the ranks; not where they are while they may be well."""
        if self._state.ending or now < self._compiled_at() + AFTER_S:
            return View(self._state, now)
        computing = {rank for rank, mark in self._marks.items() if mark.computes}
        polling = {rank for rank, mark in self._marks.items() if mark.polls}
        return View(self._state, now, Positions(stacks, self._still, computing, polling))

    def _record_positions(self, view: View) -> None:
        """Remember where ranks are that have not called initialize() while others wait in it."""
        if view.positions is None or not view.joining:
            return
        from mcjax_launch.diagnosis.sightings import sightings

        for seen in sightings(self._state, view.positions.stacks).values():
            if seen.place.stage is Stage.ABSENT:
                seen.run.before_call = seen.standing

    def _findings(self, view: View) -> list[Finding]:
        from mcjax_launch.diagnosis.rules import findings

        found = list(findings(view, Occasion.HANG))
        if not found:  # a rule has failed
            self._look_later(view.now)
            return []
        is_due = self._announcer.untold(found[:1], view.now)
        self._is_over = found[0].is_certain
        self._next_at = self._next_stacks_at = self._announcer.next_at(found[0])
        return [*is_due, *self._announcer.untold(found[1:], view.now)] if is_due else []

    def _seen_since(self, wait: "Wait", now: float) -> float:
        """Return since when the threads of a wait have been where they are, as looks show."""
        threads_at = wait.key, wait.threads
        if threads_at != self._threads_at:
            self._threads_at, self._threads_since = threads_at, now
        return self._threads_since

    def _has_lasted(self, wait: "Wait", now: float) -> bool:
        """Return whether nothing has moved for so long, not even in C++ code."""
        idle = [rank for rank, mark in self._marks.items() if mark.idles]
        everybody = (run.process_id for run in self._state.running)
        return now - wait.since >= AFTER_S and set(everybody) <= set(idle)

    def _compiles_too_long_at(self, now: float) -> float:
        """When a compilation that uses no processor by now will have done so for too long."""
        runs = ((run.compilations, self._state.pause.ended_at) for run in self._state.running)
        due = (now - one.idle_s(since) + IDLE_S + 1 for one, since in runs if one.idle_s(since) > 0)
        return min((at for at in due if at > now), default=math.inf)

    @property
    def advice(self) -> str:
        """What shows more, and ends such a job."""
        if self._stall_timeout is not None:
            end = f"--stall-timeout {self._stall_timeout:g} ends the job if nothing moves"
        else:
            end = "--stall-timeout 10m would end a job in which nothing moves"
        see = f"{self._shows_stacks} shows where all ranks are; " if self._shows_stacks else ""
        return f"{see}{end}"

"""Looks where ranks are every few seconds while somebody does, and names one that is slow."""

from functools import partial
from typing import TYPE_CHECKING

from mcjax_launch.diagnosis import slow
from mcjax_launch.diagnosis.root_cause import RankFailed
from mcjax_launch.features.looks.messages import AskPlaces, PlacesAsked, StandsAt
from mcjax_launch.kernel.launcher.part import LauncherPart
from mcjax_launch.kernel.wire.messages import FromHook
from mcjax_launch.kernel.wire.timers import scaled
from mcjax_launch.runs.looks import Looks
from mcjax_launch.runs.rank_run import Stage

if TYPE_CHECKING:
    from mcjax_launch.diagnosis.summary import Summary
    from mcjax_launch.job.plan import Plan
    from mcjax_launch.kernel.launcher.launcher import Launcher
    from mcjax_launch.kernel.transport.connection import AgentConnection
    from mcjax_launch.kernel.wire.frames import Raw
    from mcjax_launch.kernel.wire.messages import ToLauncher

#: Seconds between two looks.
EVERY_S = scaled(3.0)
# So many there are within --stall-timeout.
_WITHIN_STALL = 4
# So many ranks are named; where there are more, it is the program that is made so.
_MOST_NAMED = 3


class Looking(LauncherPart):
    """Asks agents, keeps what comes, and says what follows from that."""

    def __init__(self, launcher: "Launcher") -> None:
        super().__init__(launcher)
        self._state = launcher.state
        self._looks: Looks | None = None  # none while nobody looks
        stall_s = launcher.job.stall_timeout
        self._every_s = EVERY_S if stall_s is None else min(EVERY_S, stall_s / _WITHIN_STALL)
        self._next_at = 0.0
        self._named: dict[int, slow.SlowRank] = {}

    def begins(self, plan: "Plan", now: float) -> None:
        """Look from the first calls of initialize() on, if anybody does."""
        line = self.launcher.console.status_line
        if self.launcher.job.record or (line is not None and line.is_live):
            self._looks = self._state.looks = Looks(len(plan.ranks))

    @property
    def deadline(self) -> float | None:  # type: ignore[override]
        """When to look next; None while that tells nothing."""
        state = self._state
        if state.ending or state.pause.is_on:
            return None
        return self._next_at if self._compares or self._has_accelerators else None

    @property
    def _compares(self) -> bool:
        """True if somebody looks, and two ranks can wait for each other."""
        return self._looks is not None and self._state.initialize_calls > 1

    @property
    def _has_accelerators(self) -> bool:
        """True if the answers of ranks on accelerators show whether these move."""
        return any(run.compilations.on_accelerator for run in self._state.running)

    def expire(self, now: float) -> None:
        """Look, if it is time."""
        deadline = self.deadline
        if deadline is None or now < deadline:
            return
        self._next_at = now + self._every_s
        begins = self._looks is not None and self._compares and self._begin(self._looks, now)
        if begins or self._has_accelerators:
            self.launcher.pool.send_all(AskPlaces())

    def _begin(self, looks: Looks, now: float) -> bool:
        """Judge the looks before, and begin one if two ranks can be compared."""
        self._judge(looks)
        inside = {rank: run for rank, run in self._state.ranks.items() if self._is_inside(rank)}
        if len(inside) > 1:
            looks.begin(now, [rank for rank in inside if inside[rank].compilations.under_way])
        return len(inside) > 1

    def _is_inside(self, rank: int) -> bool:
        return self._state.ranks[rank].place.stage is Stage.INSIDE

    def received(self, link: "AgentConnection", message: "ToLauncher | Raw", now: float) -> None:
        """Ranks have been asked, or one has answered."""
        if self._state.ending:
            return
        match message:
            case PlacesAsked(ranks, blocked):
                self._state.asked(ranks, now)
                if self._looks is not None:
                    asked = zip(ranks, blocked, strict=False)
                    # One that waits in JAX's exit barrier answers no more.
                    self._looks.asked({rank: at for rank, at in asked if self._is_inside(rank)})
            case FromHook(rank=rank, message=StandsAt() as said):
                run = self._state.ranks[rank]
                run.main_thread.silent_since = None
                if self._looks is not None:
                    self._looks.answered(rank, partial(slow.spot_of, run, said.calls, said.beside))

    def _judge(self, looks: Looks) -> None:
        """Name a rank that has turned out to be slow; once a look, for it takes each of them."""
        for one in slow.slow_ranks(looks.recent):
            known = self._named.get(one.rank)
            if known is None and len(self._named) < _MOST_NAMED:
                self.launcher.console.note(one.line())
            if known is not None or len(self._named) < _MOST_NAMED:
                self._named[one.rank] = max(known or one, one, key=lambda seen: seen.waited)

    def concluded(self, summary: "Summary", *, last: bool) -> None:
        """Say it once more, of the whole run."""
        if self._looks is None or isinstance(summary.ending, RankFailed):
            return
        whole = {one.rank: one for one in slow.slow_ranks(self._looks.moments)}
        for rank, one in list({**self._named, **whole}.items())[:_MOST_NAMED]:
            self.launcher.console.note(one.line(for_a_time=rank not in whole))


PART = Looking

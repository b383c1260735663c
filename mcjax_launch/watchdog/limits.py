"""What ends a job that should not go on: it takes too long, it hangs, or its ranks diverge."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from mcjax_launch.job.job import Job
from mcjax_launch.runs.rank_run import RankRun
from mcjax_launch.runs.state import RunState
from mcjax_launch.runs.stop_reasons import Stop, diverged, incomparable, out_of_time

if TYPE_CHECKING:
    from mcjax_launch.watchdog.spmd import SpmdWatch

# How often agents report usage within --stall-timeout.
_SAMPLES = 4
_SHORTEST_PERIOD_S, _LONGEST_PERIOD_S = 0.1, 15.0
_RECORD_S = 1.0
# When ranks diverge, the others get so many seconds to show which side they are on.
_SETTLING_S = 1.0
# And so many to show the code of programs, which may be long.
_LONGEST_SHOW_S = 10.0


class Limits:
    """Watches over --timeout, --start-timeout, --stall-timeout and --verify-spmd, each once.

    Times are in time.monotonic's seconds.

    Args:
        job: has the limits.
        state: of the run.
        now: when the ranks are started.
        on_reason: called as soon as there is a reason to end the job; `expire` returns it when
            the job is to end.

    Attributes:
        spmd: the watch over programs that ranks wait in, with --verify-spmd.

    """

    def __init__(
        self, job: Job, state: RunState, now: float, on_reason: Callable[[Stop], object]
    ) -> None:
        self._state = state
        self._on_reason = on_reason
        self._job_s = job.timeout
        self._start_s = job.start_timeout
        self._stall_s = job.stall_timeout
        self._verify = job.verify_spmd
        self.spmd = _watch(state) if job.verify_spmd else None
        # When ranks have diverged: the end of the job, unless more will be known by then.
        self._settles_at: float | None = None
        self._waits_for_code = False
        self._began_at = now
        state.activity.active_at = now

    @property
    def deadline(self) -> float | None:
        """When to call `expire` again."""
        times = []
        if not self._state.pause.is_on:
            times = [self._began + s for s in (self._job_s, self._start_s) if s is not None]
            if self._stall_s is not None and not self._compiling:
                times.append(self._stalled_at(self._stall_s))
        if self._settles_at is not None:
            times.append(self._settles_at)
        if self.spmd is not None and (at := self.spmd.deadline) is not None:
            times.append(at)
        return min(times, default=None)

    @property
    def _began(self) -> float:
        """When the ranks were started, had nobody debugged them since."""
        return self._began_at + self._state.pause.total_s

    def _stalled_at(self, seconds: float) -> float:
        """When it will have stalled; later, where agents are late with what they know."""
        activity = self._state.activity
        known_at = activity.usage_at
        if any(run.is_looked_at for run in self._state.running):
            known_at = min(known_at, activity.looked_at)
        reported = known_at >= activity.active_at + seconds / 2
        return activity.active_at + (seconds if reported else 2 * seconds)

    @property
    def _compiling(self) -> bool:
        return any(run.compilations.under_way > 0 for run in self._state.ranks.values())

    def expire(self, now: float) -> Stop | None:
        """The reason to end the job, if there is one by now."""
        if self._state.pause.is_on:
            return self._diverged(now)
        if self._job_s is not None and now >= self._began + self._job_s:
            seconds, self._job_s = self._job_s, None
            message = f"--timeout: still running after {seconds:g} s"
            return self._out_of_time(message, now, final=True)
        if self._start_s is not None:
            seconds = self._start_s
            if all(_has_started(run) for run in self._state.ranks.values()):
                self._start_s = None
            elif now >= self._began + seconds:
                self._start_s = None
                message = f"--start-timeout: not all ranks have joined after {seconds:g} s"
                return self._out_of_time(message, now, final=False, jax=True)
        return self._stalled(now) or self._diverged(now)

    def _stalled(self, now: float) -> Stop | None:
        seconds = self._stall_s
        if seconds is None or self._compiling or now < self._stalled_at(seconds):
            return None
        self._stall_s = None
        message = f"--stall-timeout: no rank has printed, computed or compiled for {seconds:g} s"
        return self._out_of_time(message, now, final=False)

    def _out_of_time(self, message: str, now: float, *, final: bool, jax: bool = False) -> Stop:
        from mcjax_launch.diagnosis.hang import hints, whereabouts
        from mcjax_launch.diagnosis.preloading import imports_under_way

        details = imports_under_way(self._state, now)
        details += whereabouts(self._state, jax=jax) + hints(self._state)
        return out_of_time(message, details, final=final)

    def _diverged(self, now: float) -> Stop | None:
        """The reason to end a job whose ranks diverge; it counts from the moment of divergence."""
        if self.spmd is not None:
            self.spmd.expire(now)
        if not self._verify:
            return None
        if why := self._incomparable():
            self._verify = False
            return incomparable(why)
        programs = self._state.programs
        if programs.divergence is None:
            return None
        from mcjax_launch.diagnosis.spmd import divergence_lines

        stop = diverged(divergence_lines(programs))
        if self._settles_at is None:
            self._settles_at = now + _SETTLING_S
            self._on_reason(stop)
        if now < self._settles_at and not (programs.settled and programs.shown):
            return None
        if not programs.shown and not self._waits_for_code:
            self._waits_for_code = True
            self._settles_at = now + _LONGEST_SHOW_S
            return None
        self._verify, self._settles_at = False, None
        return stop

    def _incomparable(self) -> str:
        runs = self._state.ranks.values()
        return next((run.incomparable for run in runs if run.incomparable), "")


def _watch(state: RunState) -> "SpmdWatch":
    from mcjax_launch.watchdog.spmd import SpmdWatch  # as only --verify-spmd needs

    return SpmdWatch(state)


def usage_every_s(job: Job, *, watched: bool) -> float:
    """How often agents report what their ranks use, in seconds; 0: never.

    Args:
        job: what is run.
        watched: somebody looks at that while it runs.

    """
    periods = [_RECORD_S] if job.record or watched else []
    if job.stall_timeout is not None:
        periods.append(
            min(max(job.stall_timeout / _SAMPLES, _SHORTEST_PERIOD_S), _LONGEST_PERIOD_S)
        )
    return min(periods, default=0.0)


def _has_started(run: RankRun) -> bool:
    return run.membership.joined_at is not None or run.status is not None

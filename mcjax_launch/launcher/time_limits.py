"""The time limits of a job: --timeout, --start-timeout and --stall-timeout."""

from mcjax_launch.job.job import Job
from mcjax_launch.journal.state import RunState
from mcjax_launch.journal.stop_reasons import StopReason, out_of_time
from mcjax_launch.options import features as declared
from mcjax_launch.wire.timers import scale_time

# How often agents report usage within --stall-timeout.
_SAMPLES = 4
_SHORTEST_PERIOD_S, _LONGEST_PERIOD_S = 0.1, 15.0
_RECORD_S = 1.0
#: Seconds between two events on a rank's GPUs.
GPU_EVENTS_S = scale_time(10.0)


class TimeLimits:
    """Timer of the three time limits that can end the job.

    Times are in time.monotonic's seconds.

    Args:
        job: job with the limits.
        state: state of the attempt.
        now: start time of the ranks.

    """

    def __init__(self, job: Job, state: RunState, now: float) -> None:
        self._state = state
        self._job_s = job.timeout
        self._start_s = job.start_timeout
        self._stall_s = job.stall_timeout
        self._began_at = now
        state.activity.active_at = now

    @property
    def deadline(self) -> float | None:
        """Time of the next call of `expire`; None if no limit applies now."""
        state = self._state
        if state.pause.is_on:
            return None
        times = [] if self._job_s is None else [self._began + self._job_s]
        if self._start_s is not None:
            times.append(self._start_began + self._start_s)
        if self._stall_s is not None and not state.activity.is_idle:
            times.append(state.activity.active_at + self._stall_s)
        return min(times, default=None)

    @property
    def _began(self) -> float:
        """Start time of the ranks, moved later by the time spent in debuggers."""
        return self._began_at + self._state.pause.total_s

    @property
    def _start_began(self) -> float:
        """Start of the wait for ranks to join.

        After a suspension of the launcher (Ctrl-Z), the wait restarts, because messages may
        still be unread.
        """
        return max(self._began, self._state.pause.resumed_at)

    def expire(self, now: float) -> StopReason | None:
        """Return the reason to end the job; None if no limit has been reached."""
        if self._state.pause.is_on:
            return None
        if self._job_s is not None and now >= self._began + self._job_s:
            seconds, self._job_s = self._job_s, None
            message = f"--timeout: still running after {seconds:g} s"
            return self._make_timeout_reason(message, now, final=True)
        if self._start_s is not None:
            seconds = self._start_s
            if all(run.reached.is_through for run in self._state.ranks.values()):
                self._start_s = None
            elif now >= self._start_began + seconds:
                self._start_s = None
                message = f"--start-timeout: not all ranks have joined after {seconds:g} s"
                return self._make_timeout_reason(message, now, final=False)
        return self._check_stall(now)

    def _check_stall(self, now: float) -> StopReason | None:
        seconds, activity = self._stall_s, self._state.activity
        if seconds is None or activity.is_idle or now < activity.active_at + seconds:
            return None
        self._stall_s = None
        message = f"--stall-timeout: no rank has printed, launched or compiled for {seconds:g} s"
        return self._make_timeout_reason(message, now, final=False)

    def _make_timeout_reason(self, message: str, now: float, *, final: bool) -> StopReason:
        rules = declared.load("rules")
        lines = rules.explain_limit(self._state, now) if rules else []
        return out_of_time(message, lines, final=final)


def compute_usage_period_s(job: Job, *, watched: bool, events: bool = False) -> float:
    """Return the period in seconds at which agents report ranks' usage; 0 for never.

    Args:
        job: the job.
        watched: True if the usage is shown while the job runs.
        events: True if events are read, which have the usage of GPUs.

    """
    periods = [_RECORD_S] if job.record or watched else []
    if events and not job.uses_cpu:
        periods.append(GPU_EVENTS_S)
    if job.stall_timeout is not None:
        periods.append(
            min(max(job.stall_timeout / _SAMPLES, _SHORTEST_PERIOD_S), _LONGEST_PERIOD_S)
        )
    return min(periods, default=0.0)

"""The limits that a user sets on a job's time, and the words for one that is reached; pure."""

from collections.abc import Sequence
from dataclasses import replace

from mcjax_launch import errors
from mcjax_launch.history import History, RankRun, Stop
from mcjax_launch.plan import Job

# How often a rank is looked at while it may stall.
_LOOKS = 4
_SHORTEST_LOOK_S, _LONGEST_LOOK_S = 0.1, 15.0
_RECORD_S = 1.0


class Limits:
    """Watches over --timeout, --start-timeout and --stall-timeout. Each is reached once.

    Args:
        at: when the ranks were told to start, on the history's clock.

    """

    def __init__(self, job: Job, history: History, at: float) -> None:
        self._history = history
        self._job_s = job.timeout
        self._start_s = job.start_timeout
        self._stall_s = job.stall_timeout
        self._began_at = history.active_at = at

    @property
    def deadline(self) -> float | None:
        """When to ask `reached` again."""
        times = [self._began_at + s for s in (self._job_s, self._start_s) if s is not None]
        if self._stall_s is not None and not self._compiling:
            times.append(self._history.active_at + self._stall_s)
        return min(times, default=None)

    @property
    def _compiling(self) -> bool:
        return any(run.compiling is not None for run in self._history.ranks.values())

    def reached(self, at: float) -> Stop | None:
        """The reason to end the job, if there is one by now."""
        if self._job_s is not None and at >= self._began_at + self._job_s:
            seconds, self._job_s = self._job_s, None
            return _stop(f"--timeout: not done after {seconds:g} s")
        if self._start_s is not None:
            missing = [run for run in self._history.ranks.values() if not _has_started(run)]
            seconds = self._start_s
            if not missing:
                self._start_s = None
            elif at >= self._began_at + seconds:
                self._start_s = None
                return not_joined(seconds, missing)
        return self._stalled(at)

    def _stalled(self, at: float) -> Stop | None:
        seconds = self._stall_s
        if seconds is None or self._compiling or at < self._history.active_at + seconds:
            return None
        self._stall_s = None
        return replace(
            _stop(
                f"--stall-timeout: for {seconds:g} s no rank has printed, computed or compiled "
                "anything"
            ),
            final=False,
        )


def look_s(job: Job) -> float:
    """How often agents look at what their ranks use, in seconds; 0: never."""
    looks = [_RECORD_S] if job.record else []
    if job.stall_timeout is not None:
        looks.append(min(max(job.stall_timeout / _LOOKS, _SHORTEST_LOOK_S), _LONGEST_LOOK_S))
    return min(looks, default=0.0)


def _has_started(run: RankRun) -> bool:
    return run.joined_at is not None or run.status is not None


def _stop(words: str, details: Sequence[str] = ()) -> Stop:
    return Stop(words, errors.TIMED_OUT, tuple(details))


def not_joined(seconds: float, missing: Sequence[RankRun]) -> Stop:
    """The end of a job some of whose ranks never got through `initialize()`."""
    absent = [run for run in missing if run.joining_at is None]
    waiting = [run for run in missing if run.joining_at is not None]
    details = [
        f"{words}: {_names(runs)}"
        for words, runs in (("never called initialize()", absent), ("waiting in it", waiting))
        if runs
    ]
    return replace(_stop(f"--start-timeout: not done after {seconds:g} s", details), final=False)


def _names(runs: Sequence[RankRun]) -> str:
    return ", ".join(f"rank {run.process_id} on {run.host}" for run in runs)

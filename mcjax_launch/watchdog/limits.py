"""What a user does not want to go on: too long, too still, or apart; and the words for it; pure."""

from dataclasses import replace

from mcjax_launch.job.job import Job
from mcjax_launch.protocol import exit_status
from mcjax_launch.run.state import History, RankRun, Stop
from mcjax_launch.watchdog.spmd import Overdue

# How often a rank is looked at while it may stall.
_LOOKS = 4
_SHORTEST_LOOK_S, _LONGEST_LOOK_S = 0.1, 15.0
_RECORD_S = 1.0
# Where ranks part, the others get so long to show which side they are on.
_SETTLING_S = 1.0
_PARTED = "--verify-spmd: the ranks run different programs"


class Limits:
    """Watches over --timeout, --start-timeout, --stall-timeout and --verify-spmd, each once.

    Args:
        at: when the ranks were told to start, on the history's clock.

    Attributes:
        overdue: what ranks wait for in vain, with --verify-spmd.

    """

    def __init__(self, job: Job, history: History, at: float) -> None:
        self._history = history
        self._job_s = job.timeout
        self._start_s = job.start_timeout
        self._stall_s = job.stall_timeout
        self._verify = job.verify_spmd
        self.overdue = Overdue(history) if job.verify_spmd else None
        self._diverged_at: float | None = None
        self._began_at = history.active_at = at

    @property
    def deadline(self) -> float | None:
        """When to ask `reached` again."""
        times = [self._began_at + s for s in (self._job_s, self._start_s) if s is not None]
        if self._stall_s is not None and not self._compiling:
            times.append(self._stalled_at(self._stall_s))
        if self._diverged_at is not None:
            times.append(self._diverged_at + _SETTLING_S)
        if self.overdue is not None and (at := self.overdue.deadline) is not None:
            times.append(at)
        return min(times, default=None)

    def _stalled_at(self, seconds: float) -> float:
        """When it will have stalled; later, where agents are late with a look at their ranks."""
        history = self._history
        looked = history.looked_at >= history.active_at + seconds / 2
        return history.active_at + (seconds if looked else 2 * seconds)

    @property
    def _compiling(self) -> bool:
        return any(run.compilations > 0 for run in self._history.ranks.values())

    def reached(self, at: float) -> Stop | None:
        """The reason to end the job, if there is one by now."""
        if self._job_s is not None and at >= self._began_at + self._job_s:
            seconds, self._job_s = self._job_s, None
            return self._still(f"--timeout: not done after {seconds:g} s")
        if self._start_s is not None:
            seconds = self._start_s
            if all(_has_started(run) for run in self._history.ranks.values()):
                self._start_s = None
            elif at >= self._began_at + seconds:
                self._start_s = None
                words = f"--start-timeout: not all ranks have joined after {seconds:g} s"
                return replace(self._still(words, jax=True), final=False)
        return self._stalled(at) or self._parted(at)

    def _stalled(self, at: float) -> Stop | None:
        seconds = self._stall_s
        if seconds is None or self._compiling or at < self._stalled_at(seconds):
            return None
        self._stall_s = None
        words = f"--stall-timeout: no rank has printed, computed or compiled for {seconds:g} s"
        return replace(self._still(words), final=False)

    def _still(self, words: str, *, jax: bool = False) -> Stop:
        """The end of a job that does not get on."""
        from mcjax_launch.diagnosis.hang import hints, picture

        details = picture(self._history, jax=jax) + hints(self._history)
        return Stop(words, exit_status.TIMED_OUT, tuple(details), picture=True)

    def _parted(self, at: float) -> Stop | None:
        """The end where ranks part; from the first moment that is what ends the job."""
        programs = self._history.programs
        if self.overdue is not None:
            self.overdue.check(at)
        if self._verify and (blind := [run for run in self._history.ranks.values() if run.blind]):
            self._verify = False
            words = f"--verify-spmd: it cannot see the programs of this jax: {blind[0].blind}"
            return Stop(words, exit_status.FAILED)
        if not self._verify or programs.divergence is None:
            return None
        stop = Stop(_PARTED, exit_status.FAILED, tuple(programs.words()))
        if self._diverged_at is None:
            self._diverged_at = at
            self._history.stopped(stop, at)
        if at < self._diverged_at + _SETTLING_S and not programs.settled:
            return None
        self._verify, self._diverged_at = False, None
        self._history.amend(stop)
        return stop


def look_s(job: Job) -> float:
    """How often agents look at what their ranks use, in seconds; 0: never."""
    looks = [_RECORD_S] if job.record else []
    if job.stall_timeout is not None:
        looks.append(min(max(job.stall_timeout / _LOOKS, _SHORTEST_LOOK_S), _LONGEST_LOOK_S))
    return min(looks, default=0.0)


def _has_started(run: RankRun) -> bool:
    return run.joined_at is not None or run.status is not None

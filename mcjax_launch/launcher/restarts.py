"""Loop over a job's attempts: starts the job again after failures that a restart may cure."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from mcjax_launch.diagnosis.attempt import Attempt, JobOutcome
from mcjax_launch.diagnosis.root_cause import JobStopped, NotStarted, RankFailed
from mcjax_launch.diagnosis.summary import describe_run_end, format_duration, summarize_failed_start
from mcjax_launch.diagnosis.verdict import determine_verdict
from mcjax_launch.errors import LaunchError
from mcjax_launch.job.hosts import Host
from mcjax_launch.job.job import Job
from mcjax_launch.job.plan import count_ranks_by_host
from mcjax_launch.launcher.front import Front
from mcjax_launch.launcher.launcher import Launcher
from mcjax_launch.launcher.timers import OneShotTimer, compute_pause_s
from mcjax_launch.machine.known_schedulers import count_restarts, find_scheduler
from mcjax_launch.ranks import format_count
from mcjax_launch.runs.rank_run import RankRun, Verdict
from mcjax_launch.runs.state import RunState
from mcjax_launch.runs.stop_reasons import StopReason
from mcjax_launch.transport.remote_commands import Transport
from mcjax_launch.wire.exit_status import HOST_LOST
from mcjax_launch.wire.value import Value

# --- whether another attempt is worth it, and on which hosts ---

# Two attempts count as equally long if they differ by at most this time or share.
_ALIKE_S, _ALIKE_SHARE = 2.0, 0.25
# Attempts that failed by a signal or a loss on a host before it is left out.
_WORN = 2
_WORDS = {"host": "a lost host", "signal": "a signal"}


class Crash(Value):
    """Exception that has ended an attempt.

    Args:
        exception: class name of the exception.
        where: the user's line that raised it.
        joined: True if it was raised after initialize().
        age_s: seconds since the program's start, or since initialize() if `joined`.

    """

    exception: str
    where: str
    joined: bool
    age_s: float

    def is_again(self, other: Crash) -> bool:
        """Return whether another crash has the same cause, at about the same age of the program."""
        if self.copy_with(age_s=0.0) != other.copy_with(age_s=0.0):
            return False
        ages = (self.age_s, other.age_s)
        return max(ages) - min(ages) <= max(_ALIKE_S, _ALIKE_SHARE * max(ages))


class AttemptEnd(Value):
    """Failure of an attempt.

    Args:
        kind: "host" (lost or unreachable), "signal" (a rank was killed by one) or "other".
        hosts: hosts that were lost, or host of the killed rank; () for "other".
        crash: exception that caused the failure; None if there was none.

    """

    kind: str
    hosts: tuple[str, ...] = ()
    crash: Crash | None = None


def classify_end(attempt: Attempt, lost: Collection[Host]) -> AttemptEnd:
    """Describe the failure of an attempt; `lost`: hosts that the attempt has lost."""
    match attempt.summary.ending:
        case RankFailed(culprit=run) if run.status is not None and run.status < 0 and run.failed:
            if run.hidden_failure is None and determine_verdict(run) is not Verdict.VICTIM:
                return AttemptEnd("signal", (run.host,))
            return AttemptEnd("other", crash=_find_crash(run))
        case RankFailed(culprit=run):
            return AttemptEnd("other", crash=_find_crash(run))
        case JobStopped() | NotStarted() as ending if ending.status == HOST_LOST:
            return AttemptEnd("host", tuple(sorted({host.name for host in lost})))
    return AttemptEnd("other")


def _find_crash(run: RankRun) -> Crash | None:
    failure, since = run.failure, run.membership.joined_at or run.process.started_at
    if failure is None or failure.exited or not failure.where:
        return None
    if determine_verdict(run) is Verdict.VICTIM:
        return None
    if run.failed_at is None or since is None:
        return None
    joined = run.membership.joined_at is not None
    return Crash(failure.exception, failure.where, joined, run.failed_at - since)


class RestartPolicy:
    """Policy that judges the attempts of a job, one after another.

    Args:
        restart_on: words of --restart-on: "host", "signal" or "any".

    Attributes:
        worn_out: names of hosts on which several attempts failed by a signal or a loss.

    """

    def __init__(self, restart_on: Sequence[str]) -> None:
        self._restart_on = restart_on
        self._last: Crash | None = None
        self._failures: Counter[str] = Counter()  # by host
        self.worn_out: set[str] = set()

    def record_failed_attempt(self, end: AttemptEnd) -> str:
        """Record a failed attempt; return the reason against a restart, "" to restart."""
        before, self._last = self._last, end.crash
        self._failures.update(end.hosts)
        self.worn_out = {host for host, count in self._failures.items() if count >= _WORN}
        if "any" not in self._restart_on and end.kind not in self._restart_on:
            wanted = " or ".join(_WORDS[word] for word in self._restart_on)
            return f"not restarted: --restart-on {','.join(self._restart_on)} is for {wanted}"
        if before is not None and end.crash is not None and end.crash.is_again(before):
            times = f"{format_duration(before.age_s)} and {format_duration(end.crash.age_s)}"
            since = "initialize()" if end.crash.joined else "the start"
            what = f"{end.crash.exception} at {end.crash.where}"
            twice = f"{what} twice in a row, {times} after {since}"
            return f"not restarted: {twice}: another restart would not help"
        return ""


# --- the loop over attempts ---


def run(
    job: Job,
    hosts: Sequence[Host],
    transport: Transport,
    *,
    ended: Callable[[Attempt], object],
    front: Front,
) -> JobOutcome:
    """Run a job, restarted up to --max-restarts times; return its outcome.

    Args:
        job, hosts, transport: see Launcher.
        ended: called after each attempt.
        front: the launcher's process.

    Raises:
        LaunchError: the job could not be started.

    """
    kept: dict[str, object] = {}
    failures: list[str] = []
    policy = RestartPolicy(job.restart_on)
    before = _count_earlier_restarts(os.environ)
    for restart in range(job.max_restarts + 1):
        state = _make_state(job, len(hosts))
        launcher = Launcher(
            job,
            hosts,
            transport,
            front=front,
            state=state,
            restart=before + restart,
            last=restart == job.max_restarts,
            kept=kept,
        )
        front.call_after_release(partial(launcher.report_beginning, hosts, restart))
        try:
            summary, refused = launcher.run(), None
        except LaunchError as error:
            refused = error
            summary = summarize_failed_start(str(error), error.status)
        attempt = Attempt(
            restart=before + restart,
            hosts=tuple(host.name for host in hosts),
            seconds=time.monotonic() - state.began_at,
            state=state,
            summary=summary,
            program_checksums=launcher.startup.program_checksums,
        )
        ended(attempt)
        last = summary.final or restart == job.max_restarts
        if not last and (why := policy.record_failed_attempt(classify_end(attempt, launcher.lost))):
            launcher.console.say(why)
            last = True
        if refused is not None:
            if last:
                _print_earlier_failures(failures, launcher)
                raise refused
            launcher.console.say(str(refused))
        if last:
            break
        failures.append(f"attempt {restart + 1}: {summary.lines[0]}")
        all_hosts = hosts
        worn_out = {host for host in hosts if host.name in policy.worn_out}
        job, hosts = drop_hosts(job, hosts, launcher.lost | worn_out)
        if missing := [host.name for host in all_hosts if host not in hosts]:
            launcher.console.say(describe_dropped_hosts(missing, job, hosts, policy.worn_out))
        seconds = compute_pause_s(restart)
        launcher.console.say(f"restarting in {seconds:g} s ({restart + 1} of {job.max_restarts})")
        if (stop := _pause(seconds, front)) is not None:
            return _make_stopped_outcome(stop, failures, launcher)
    if summary.status:
        _print_earlier_failures(failures, launcher)
    elif failures:
        launcher.console.say(f"attempt {len(failures) + 1} succeeded")
    return JobOutcome(summary.status, describe_run_end(summary, state), state.failed_early)


def _count_earlier_restarts(environ: Mapping[str, str]) -> int:
    """Return the number of restarts of the job by a scheduler."""
    scheduler = find_scheduler(environ)
    if scheduler is None or scheduler.restarts:
        return count_restarts(environ)
    from mcjax_launch.schedulers import load_driver

    return load_driver(scheduler).count_restarts(environ)


def _make_state(job: Job, hosts: int) -> RunState:
    state = RunState(began_at=time.monotonic(), hosts=hosts, num_processes=job.num_processes)
    state.preempted_status = job.preempted_status
    if job.record:
        from mcjax_launch.runs.past_waits import PastWaits

        state.waits = PastWaits()
    return state


def _make_stopped_outcome(
    stop: StopReason, failures: Sequence[str], launcher: Launcher
) -> JobOutcome:
    """Return the outcome of a job whose pause a signal, which is printed, or a save has ended."""
    message = stop.message
    if not stop.saved:
        message += " before another attempt"
        launcher.console.say(message)
        _print_earlier_failures(failures, launcher)
    return JobOutcome(stop.status, message)


def _print_earlier_failures(failures: Sequence[str], launcher: Launcher) -> None:
    if failures:
        launcher.console.say(
            "\n".join(["earlier attempts:", *(f"  {failure}" for failure in failures)])
        )


def describe_dropped_hosts(
    missing: Sequence[str], job: Job, hosts: Sequence[Host], worn: Collection[str] = ()
) -> str:
    """Return a line that says which hosts --min-hosts drops; `worn`: names of failing hosts."""
    ranks, left = format_count(job.num_processes, "rank"), format_count(len(hosts), "host")
    without = f"host{'s' if len(missing) > 1 else ''} {', '.join(missing)}"
    twice = [name for name in missing if name in worn]
    why = f" (two attempts failed on {', '.join(twice)})" if twice else ""
    return f"--min-hosts: continuing without {without}{why}: {ranks} on {left}"


def drop_hosts(job: Job, hosts: Sequence[Host], lost: set[Host]) -> tuple[Job, Sequence[Host]]:
    """Return job and hosts without the lost hosts; unchanged if --min-hosts does not allow that."""
    left = [host for host in hosts if host not in lost]
    if not lost or job.min_hosts is None or len(left) < max(1, job.min_hosts):
        return job, hosts
    slots = sum(host.slots for host in left)
    job = job.copy_with(num_processes=min(job.num_processes, slots))
    return job, tuple(count_ranks_by_host(job.num_processes, left))


def _pause(seconds: float, front: Front) -> StopReason | None:
    """Wait for some seconds; return the signal or save that ended the wait early, else None."""
    ends: list[StopReason] = []
    over = OneShotTimer(time.monotonic() + seconds, lambda: None)
    return front.wait([over], lambda: over.deadline is None, ends)

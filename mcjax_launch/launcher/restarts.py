"""Loop over a job's attempts: starts the job again after failures that a restart may cure."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from functools import partial

from mcjax_launch.errors import LaunchError
from mcjax_launch.job.hosts import Host
from mcjax_launch.job.job import Job
from mcjax_launch.journal.attempt import Attempt, JobOutcome
from mcjax_launch.journal.ending import RankFailed
from mcjax_launch.journal.rank_run import RankRun, Verdict
from mcjax_launch.journal.state import RunState
from mcjax_launch.journal.stop_reasons import StopReason
from mcjax_launch.journal.summary import describe_run_end, summarize_failed_start
from mcjax_launch.journal.verdict import determine_verdict
from mcjax_launch.journal.words import format_duration
from mcjax_launch.launcher.front import Front
from mcjax_launch.launcher.launcher import Launcher
from mcjax_launch.launcher.timers import OneShotTimer, compute_pause_s
from mcjax_launch.machine.known_schedulers import count_restarts
from mcjax_launch.transport.remote_commands import Transport
from mcjax_launch.wire.value import Value

# --- whether another attempt is worth it ---

# Two attempts count as equally long if they differ by at most this time or share.
_ALIKE_S, _ALIKE_SHARE = 2.0, 0.25


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


def find_crash(attempt: Attempt) -> Crash | None:
    """Return the exception that has ended an attempt; None if none has."""
    match attempt.summary.ending:
        case RankFailed(culprit=run) if determine_verdict(run) is not Verdict.VICTIM:
            return _make_crash(run)
    return None


def _make_crash(run: RankRun) -> Crash | None:
    failure, since = run.failure, run.membership.joined_at or run.process.started_at
    if failure is None or failure.exited or not failure.where:
        return None
    if run.failed_at is None or since is None:
        return None
    joined = run.membership.joined_at is not None
    return Crash(failure.exception, failure.where, joined, run.failed_at - since)


def explain_no_restart(before: Crash | None, now: Crash | None) -> str:
    """Return the reason against a restart after two attempts; "" to restart.

    Args:
        before, now: the exceptions that have ended the attempts; None for another end.

    """
    if before is None or now is None or not now.is_again(before):
        return ""
    times = f"{format_duration(before.age_s)} and {format_duration(now.age_s)}"
    since = "initialize()" if now.joined else "the start"
    twice = f"{now.exception} at {now.where} twice in a row, {times} after {since}"
    return f"not restarted: {twice}: another restart would not help"


# --- the loop over attempts ---


def run(
    job: Job,
    hosts: Sequence[Host],
    transport: Transport,
    *,
    front: Front,
) -> JobOutcome:
    """Run a job, restarted up to --max-restarts times; return its outcome.

    Args:
        job, hosts, transport: see Launcher.
        front: the launcher's process.

    Raises:
        LaunchError: the job could not be started.

    """
    kept: dict[str, object] = {}
    failures: list[str] = []
    crash: Crash | None = None
    before = count_restarts(os.environ)
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
        front.journal.append(attempt)
        last = summary.final or restart == job.max_restarts
        before_it, crash = crash, find_crash(attempt)
        if not last and (why := explain_no_restart(before_it, crash)):
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
        seconds = compute_pause_s(restart)
        launcher.console.say(f"restarting in {seconds:g} s ({restart + 1} of {job.max_restarts})")
        if (stop := _pause(seconds, front)) is not None:
            return _make_stopped_outcome(stop, failures, launcher)
    if summary.status:
        _print_earlier_failures(failures, launcher)
    elif failures:
        launcher.console.say(f"attempt {len(failures) + 1} succeeded")
    return JobOutcome(summary.status, describe_run_end(summary, state), state.failed_early)


def _make_state(job: Job, hosts: int) -> RunState:
    state = RunState(began_at=time.monotonic(), hosts=hosts, num_processes=job.num_processes)
    state.preempted_status = job.preempted_status
    state.each_alone = bool(job.alone)
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


def _pause(seconds: float, front: Front) -> StopReason | None:
    """Wait for some seconds; return the signal or save that ended the wait early, else None."""
    ends: list[StopReason] = []
    over = OneShotTimer(time.monotonic() + seconds, lambda: None)
    return front.wait([over], lambda: over.deadline is None, ends)

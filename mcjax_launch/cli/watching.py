"""--watch: the job again, each time that a file is saved."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

from mcjax_launch.diagnosis.attempt import JobOutcome
from mcjax_launch.errors import LaunchError
from mcjax_launch.job.hosts import Host
from mcjax_launch.job.job import Job
from mcjax_launch.kernel.launcher.entry import own_front
from mcjax_launch.kernel.launcher.front import Front
from mcjax_launch.kernel.wire import exit_status
from mcjax_launch.kernel.wire.loop import READ
from mcjax_launch.kernel.wire.signals import ENDING
from mcjax_launch.options.options import Options
from mcjax_launch.request import ready
from mcjax_launch.request.watched import watched, written
from mcjax_launch.runs import stop_reasons
from mcjax_launch.runs.stop_reasons import StopReason
from mcjax_launch.saves.folders import WatchedFolders
from mcjax_launch.saves.saves import Saves

Say = Callable[[str], object]
Run = Callable[[Job, tuple[Host, ...], Front], JobOutcome]


def run_again(options: Options, run: Run, say: Say) -> int:
    """Run a job, and again when a file is saved, until a signal ends that; the exit status.

    Args:
        options: what was asked for.
        run: runs the job once.
        say: prints a line of the launcher's own.

    Raises:
        LaunchError: the job cannot be started the first time.

    """
    note = _ignore if options.quiet else _once(say)
    raw, all_hosts = ready.find(options, os.environ, note)
    front = own_front()
    folders = WatchedFolders(watched(raw), written(raw))
    front.saves = Saves(folders, front.loop, raw.python, say, _ignore if options.quiet else say)
    is_first = True
    while True:
        front.saves.begin()
        try:
            job, hosts = ready.complete(raw, all_hosts, options, os.environ, note)
            outcome = run(job, hosts, front)
            if outcome.ends_all:
                return outcome.status
        except LaunchError as error:
            if is_first or error.status == exit_status.INTERNAL_ERROR:
                raise
            say(str(error))
        is_first = False
        front.saves.job_ended()
        if (stop := _wait(front, front.saves)) is not None:
            say(stop.message)
            return stop.status


def _wait(front: Front, saves: Saves) -> StopReason | None:
    """Wait for a save; return what ends the wait otherwise."""
    got: list[StopReason] = []

    def read_signals(_: int) -> None:
        for signum in front.read_signals():
            if signum in ENDING:
                got.append(stop_reasons.interrupted(signum))
            elif signum == signal.SIGTSTP:
                os.kill(os.getpid(), signal.SIGSTOP)

    front.loop.watch(front.signals.fd, READ, read_signals)
    out, _ = front.outputs(lambda: None)
    out.watch(lambda error: got.append(stop_reasons.reader_gone(error)))
    while not got and not saves.is_ready:
        front.loop.run_once((saves,))
    return got[0] if got else None


def _once(say: Say) -> Say:
    """Return what says the same only once."""
    said: set[str] = set()

    def say_once(line: str) -> None:
        if line not in said:
            said.add(line)
            say(line)

    return say_once


def _ignore(message: str) -> None:
    """What is said with --quiet."""

"""--watch: runs of a job, one after each save of a file."""

from __future__ import annotations

import os
import termios
from collections.abc import Callable
from functools import cache

from mcjax_launch.cli.watched import find_watched, list_written_paths
from mcjax_launch.diagnosis.attempt import JobOutcome
from mcjax_launch.errors import LaunchError
from mcjax_launch.job.hosts import Host
from mcjax_launch.job.job import Job
from mcjax_launch.launcher.entry import make_own_front
from mcjax_launch.launcher.front import Front
from mcjax_launch.machine.loop import READ
from mcjax_launch.options.options import Options
from mcjax_launch.request import ready
from mcjax_launch.runs import stop_reasons
from mcjax_launch.runs.stop_reasons import StopReason
from mcjax_launch.saves.folders import WatchedFolders
from mcjax_launch.saves.saves import Saves
from mcjax_launch.transport.resting import RestingAgents
from mcjax_launch.wire import exit_status

_MOST_TYPED = 4096
Say = Callable[[str], object]
Run = Callable[[Job, tuple[Host, ...], Front], JobOutcome]


def run_again(options: Options, run: Run, say: Say) -> int:
    """Run a job, and again after each save of a file, until a signal; return the exit status.

    Args:
        options: options of the job.
        run: runs the job once, and returns its outcome.
        say: prints a line of the launcher.

    Raises:
        LaunchError: the job cannot be started the first time.

    """
    job = WatchedJob(options, run, say)
    try:
        return job.run()
    finally:
        job.resting.dismiss()


class WatchedJob:
    """A job that is run again after each save of a file; see `run_again`.

    Attributes:
        resting: agents that wait for the next run.

    """

    def __init__(self, options: Options, run: Run, say: Say) -> None:
        note = _ignore if options.quiet else say
        self._options, self._run, self._say = options, run, say
        self._note_once = cache(note)  # not again what has been printed
        job, self._hosts = ready.find(options, os.environ, self._note_once)
        # An import server serves all runs, and has one hash seed.
        self._job = job.copy_with(hash_seed=int.from_bytes(os.urandom(4), "big"))
        self.resting = RestingAgents()
        self._front = make_own_front()
        folders = WatchedFolders(find_watched(job), list_written_paths(job))
        self._saves = Saves(folders, self._front.loop, job.python, say, note)
        self._front.saves, self._front.resting = self._saves, self.resting

    def run(self) -> int:
        """Run the job after each save until a signal ends --watch; return the exit status."""
        outcome = self._run_once()
        while not outcome.ends_all:
            if at_terminal := _is_at_terminal():
                termios.tcflush(0, termios.TCIFLUSH)  # what was typed while the job ran
            self._saves.leave_console("Enter" if at_terminal else "")
            if (stop := self._wait()) is not None:
                self._say(stop.message)
                return stop.status
            try:
                outcome = self._run_once()
            except LaunchError as error:
                if error.status == exit_status.INTERNAL_ERROR:
                    raise
                self._say(str(error))
        return outcome.status

    def _run_once(self) -> JobOutcome:
        """Run the job once, with the present files of PROGRAM."""
        self._saves.begin()
        job, hosts = ready.complete(
            self._job, self._hosts, self._options, os.environ, self._note_once
        )
        return self._run(job, hosts, self._front)

    def _wait(self) -> StopReason | None:
        """Wait for a save and return None, or return the reason if something else ends the wait."""
        ends: list[StopReason] = []
        out, _ = self._front.open_outputs(lambda: None)
        out.watch(lambda error: ends.append(stop_reasons.reader_gone(error)))
        if _is_at_terminal():
            self._front.loop.watch(0, READ, lambda ready: self._read_key())
        try:
            return self._front.wait([self._saves], lambda: self._saves.is_ready, ends)
        finally:
            self._front.loop.forget(0)

    def _read_key(self) -> None:
        """Run again after Enter."""
        if not _is_at_terminal() or not (typed := os.read(0, _MOST_TYPED)):
            self._front.loop.forget(0)  # the shell's, or its end
        elif b"\n" in typed:
            self._saves.request()


def _is_at_terminal() -> bool:
    """Return whether the user types to this process."""
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except OSError:  # no terminal, or that of another session
        return False


def _ignore(message: str) -> None:
    """Drop a message, as with --quiet."""

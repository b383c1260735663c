"""--watch: a process that starts a job again after each save, and begins the next start early.

Each run is a launcher in a process of its own, forked here. While a run's ranks work, the next run
greets, prepares its hosts and imports; it is released after the save. Signals come to this process
alone, which forwards them to the run.
"""

from __future__ import annotations

import os
import signal
import socket
import termios
import time
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn

from mcjax_launch.errors import LaunchError
from mcjax_launch.features.watch.files import find_watched, list_written_paths
from mcjax_launch.features.watch.folders import WatchedFolders
from mcjax_launch.features.watch.link import JsonLines, WatcherLink
from mcjax_launch.features.watch.saves import Saves
from mcjax_launch.job.hosts import Host
from mcjax_launch.job.job import Job
from mcjax_launch.journal import stop_reasons
from mcjax_launch.launcher.entry import make_own_front
from mcjax_launch.launcher.front import Front
from mcjax_launch.launcher.timers import OneShotTimer
from mcjax_launch.machine.loop import READ, Loop
from mcjax_launch.options import features as declared
from mcjax_launch.request import ready
from mcjax_launch.wire import exit_status
from mcjax_launch.wire.signals import ENDING, get_signal_name
from mcjax_launch.wire.timers import scale_time

if TYPE_CHECKING:
    from mcjax_launch.machine.loop import Timer
    from mcjax_launch.options.options import Options

_MOST_TYPED = 4096
# Seconds from the start of a run's ranks until the next run is begun: their own start comes first.
_NEXT_AFTER_S = scale_time(0.4)
# Seconds for a run that is not needed any more to end by itself.
_END_S = 5.0

Say = Callable[[str], object]
#: Runs a job in this process, a fork, and returns the exit status.
RunJob = Callable[[Job, tuple[Host, ...], Front], int]


def run_again(read_options: Callable[[], Options], run: RunJob, say: Say) -> int:
    """Run a job, and again after each save of a file, until a signal; return the exit status.

    Args:
        read_options: returns the job's options, by the present file of the project.
        run: runs a job.
        say: prints a line of the launcher.

    Raises:
        LaunchError: the job cannot be started the first time.

    """
    return Watcher(read_options, run, say).run()


class Run:
    """A run of the job in a process of its own.

    Attributes:
        job, hosts: what it runs, and where.
        fd: this process's end of a socket.
        pid: its process; -1 before the fork.

    """

    def __init__(self, job: Job, hosts: tuple[Host, ...]) -> None:
        self.job, self.hosts = job, hosts
        self._socket, self._theirs = socket.socketpair()
        self.fd = self._socket.fileno()
        self._lines = JsonLines(self.fd)
        self.pid = -1

    def fork(self) -> int:
        """Fork; return the new process's socket there, -1 here."""
        self.pid = os.fork()
        if self.pid == 0:
            self.close()
            return self._theirs.detach()
        self._theirs.close()
        return -1

    def watch(self, loop: Loop, on_report: Callable[[dict[str, Any]], object]) -> None:
        """Call `on_report` with what the run reports."""

        def read() -> None:
            reports = self._lines.receive()
            if reports is None:
                loop.forget(self.fd)
            for report in reports or ():
                on_report(report)

        loop.watch(self.fd, READ, lambda ready: read())

    def send(self, **order: object) -> None:
        """Send an order; do nothing if the run has ended."""
        self._lines.send(order)

    def close(self) -> None:
        """Close this process's end of the socket."""
        self._socket.close()


class Watcher:
    """The process that watches files and starts the runs; see `run_again`."""

    def __init__(self, read_options: Callable[[], Options], run: RunJob, say: Say) -> None:
        self._read_options, self._run_job, self._say = read_options, run, say
        self._note_once = cache(self._note)  # not again what has been printed
        self._is_quiet = False
        self._setup: str | None = None
        self._setup_done: dict[str, dict[str, str | None]] | None = None
        job, hosts = self._prepare()
        folders = WatchedFolders(find_watched(job), list_written_paths(job))
        self._front = make_own_front()
        self._saves = Saves(folders, self._front.loop, job.python, self)
        self._current: Run | None = None
        self._next: Run | None = None
        self._begin_next = OneShotTimer(0.0, self._begin_early)
        self._begin_next.deadline = None
        self._status: int | None = None  # the end's, once it is known
        self._ends_by = 0  # signal that ends all
        self._is_read = True
        self._prepared = job, hosts
        self._fork(Run(job, hosts), is_held=False)

    def run(self) -> int:
        """Run the job after each save until a signal ends --watch; return the exit status."""
        loop, signals = self._front.loop, self._front.signals
        out, _ = self._front.open_outputs(lambda: None)
        out.watch(lambda error: self._on_reader_loss(error))
        loop.watch(signals.fd, READ, lambda ready: self._read_signals())
        timers: list[Timer] = [self._saves, self._begin_next]
        while self._status is None:
            loop.run_once(timers)
            if self._current is None and self._saves.is_ready and self._status is None:
                self._start()
        return self._status

    # --- runs ---

    def _prepare(self) -> tuple[Job, tuple[Host, ...]]:
        """Return the job and its hosts, by the present files."""
        options = self._read_options()
        self._is_quiet = options.quiet
        job, hosts = ready.prepare(options, os.environ, self._note_once)
        if declared.get(job, "setup") != self._setup:
            self._setup, self._setup_done = declared.get(job, "setup"), None
        return self._add_setup(job), hosts

    def _add_setup(self, job: Job) -> Job:
        """Return the job with the variables that a slow --setup has set at its first start."""
        return job.copy_with(setup_done=self._setup_done)

    def _start(self) -> None:
        """Start the job: release the next run, if what it was prepared from still holds."""
        self._saves.begin()
        self._forget_keys()
        try:
            job, hosts = self._prepare()
        except LaunchError as error:
            self._say(str(error))
            self._drop_next()
            self._await_save()
            return
        if (prepared := self._next) is not None and _holds(prepared, job, hosts):
            self._current, self._next = prepared, None
            prepared.send(release=True)
        else:
            self._drop_next()
            if self._status is None:  # no signal meanwhile
                self._prepared = job, hosts
                self._fork(Run(job, hosts), is_held=False)

    def _begin_early(self) -> None:
        """Begin the next run, which waits for a save."""
        if self._next is None and self._status is None and not self._ends_by:
            self._fork(Run(*self._prepared), is_held=True)

    def _fork(self, run: Run, *, is_held: bool) -> None:
        if (fd := run.fork()) >= 0:
            self._become(run, fd, is_held=is_held)
        if is_held:
            self._next = run
        else:
            self._current = run
        run.watch(self._front.loop, lambda report: self._on_report(run, report))

    def _become(self, run: Run, fd: int, *, is_held: bool) -> NoReturn:
        """Run the job in this forked process, and exit."""
        status = exit_status.INTERNAL_ERROR
        try:
            for other in (self._current, self._next):
                if other is not None:
                    other.close()
            link = WatcherLink(fd, is_held=is_held)
            front = self._front.make_for(link)
            status = self._run_job(run.job, run.hosts, front)
        finally:
            os._exit(status)

    def _on_report(self, run: Run, report: dict[str, Any]) -> None:
        """Handle what a run reports: that its ranks have started, or what --setup has set."""
        if run is self._current and "started" in report:
            self._begin_next.deadline = time.monotonic() + _NEXT_AFTER_S
        if "setup" in report:
            self._setup_done = report["setup"]
            self._prepared = self._add_setup(self._prepared[0]), self._prepared[1]

    def _reap(self) -> None:
        for run in (self._next, self._current):  # the end of the present one may drop the next
            if run is None:
                continue
            pid, status = os.waitpid(run.pid, os.WNOHANG)
            if not pid:
                continue
            self._close(run)
            if run is self._next:
                self._next = None  # a host is gone, or has refused: the next start says so
            else:
                self._current = None
                code = os.waitstatus_to_exitcode(status)
                if code < 0:
                    self._say(f"the run was killed by {get_signal_name(-code)}")
                self._on_end(exit_status.compute_exit_status(code))

    def _on_end(self, status: int) -> None:
        """Handle the end of the current run."""
        if self._ends_by and self._saves.is_due:  # the save has ended the run
            self._stop_by(self._ends_by)
        elif self._ends_by:  # the run may have ended by itself just then
            self._end(status or exit_status.compute_signal_status(self._ends_by))
        elif not self._is_read:
            self._end(status)
        elif not self._saves.is_ready:
            self._await_save()

    def _close(self, run: Run) -> None:
        self._front.loop.forget(run.fd)
        run.close()

    def _drop_next(self) -> None:
        """End the run that waits, and wait until nothing of it is left."""
        run, self._next = self._next, None
        if run is None:
            return
        run.send(signal=int(signal.SIGINT))
        deadline = time.monotonic() + _END_S
        while not os.waitpid(run.pid, os.WNOHANG)[0]:
            if time.monotonic() >= deadline:
                os.kill(run.pid, signal.SIGKILL)
            self._front.loop.dispatch_ready(time.monotonic() + 0.05)
        self._close(run)

    def _end(self, status: int) -> None:
        self._status = status  # first: more signals may arrive meanwhile
        self._drop_next()

    # --- saves ---

    def on_due(self, changed: str) -> None:
        """End the run after a save; the next one starts when it is over."""
        if self._current is not None:
            self._current.send(saved=changed)
        else:
            self._note(stop_reasons.saved(changed).message)

    def on_syntax_error(self, error: str) -> None:
        """Print a syntax error; the job goes on, or is started after the next save."""
        if self._current is not None:
            self._current.send(say=f"{error}; the job continues")
        else:
            self._say(f"{error}; waiting for the next save")

    def on_problem(self, problem: str) -> None:
        """Print that some files cannot be watched any more."""
        if self._current is not None:
            self._current.send(say=problem)
        else:
            self._say(problem)

    def _await_save(self) -> None:
        """Print that a save is awaited, if none has come yet; run again after Enter."""
        if at_terminal := _is_at_terminal():
            termios.tcflush(0, termios.TCIFLUSH)  # what was typed while the job ran
            self._front.loop.watch(0, READ, lambda ready: self._read_key())
        if self._saves.is_quiet:
            again = "Enter to run again, " if at_terminal else ""
            self._note(f"waiting for the next save; {again}Ctrl-C to end")

    # --- the user ---

    def _note(self, line: str) -> None:
        if not self._is_quiet:
            self._say(line)

    def _read_signals(self) -> None:
        for signum in self._front.read_signals():
            if signum == signal.SIGCHLD:
                self._reap()
                continue
            if signum in ENDING:
                self._ends_by = self._ends_by or signum
            if self._current is not None:
                self._current.send(signal=int(signum))
            elif signum in ENDING and self._status is None:
                self._stop_by(signum)
            if signum == signal.SIGTSTP:
                self._suspend()
            elif signum == signal.SIGCONT and self._current is not None:
                os.kill(self._current.pid, signum)  # `_suspend` has stopped it

    def _stop_by(self, signum: int) -> None:
        """End --watch by a signal that no run has reported."""
        stop = stop_reasons.interrupted(signum)
        self._say(stop.message)
        self._end(stop.status)

    def _suspend(self) -> None:
        """Stop this process once the run has stopped, which removes its status row first."""
        if self._current is not None:
            how = os.WSTOPPED | os.WEXITED | os.WNOWAIT
            os.waitid(os.P_PID, self._current.pid, how)
        os.kill(os.getpid(), signal.SIGSTOP)

    def _on_reader_loss(self, error: OSError | None) -> None:
        """End --watch, because nothing reads its output any more."""
        self._is_read = False
        if self._current is None:
            self._end(stop_reasons.reader_gone(error).status)

    def _read_key(self) -> None:
        """Run again after Enter."""
        if not _is_at_terminal() or not (typed := os.read(0, _MOST_TYPED)):
            self._forget_keys()  # the shell's, or its end
        elif b"\n" in typed:
            self._saves.request()

    def _forget_keys(self) -> None:
        self._front.loop.forget(0)


def _holds(run: Run, job: Job, hosts: tuple[Host, ...]) -> bool:
    """Return whether a prepared run is what would be prepared now.

    Modules of the user's own that --preload has imported may have been saved.
    """
    if declared.get(job, "preload") not in ((), ("auto",)):
        return False
    same = job.copy_with(suggest_program=run.job.suggest_program) == run.job
    return same and hosts == run.hosts


def _is_at_terminal() -> bool:
    """Return whether the user types to this process."""
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except OSError:  # no terminal, or that of another session
        return False

"""--watch: a process that starts a job again after each save, and begins the next start early.

Each run is a launcher in a process of its own, forked here. While a run's ranks work, the next run
greets, prepares its hosts and imports; it is released after the save. Signals come to this process
alone, which forwards them to the run.
"""

from __future__ import annotations

import os
import signal
import termios
import time
from collections.abc import Callable
from functools import cache
from multiprocessing.connection import Connection, Pipe
from typing import TYPE_CHECKING, Any

from mcjax_launch.errors import LaunchError
from mcjax_launch.features.watch.files import find_watched, list_written_paths
from mcjax_launch.features.watch.saves import Saves
from mcjax_launch.job.hosts import Host
from mcjax_launch.job.job import Job
from mcjax_launch.journal import stop_reasons
from mcjax_launch.journal.stop_reasons import StopReason
from mcjax_launch.launcher.entry import make_own_front
from mcjax_launch.launcher.front import Front
from mcjax_launch.launcher.timers import OneShotTimer
from mcjax_launch.machine.loop import READ, SignalPipe, Signals
from mcjax_launch.machine.system import is_in_foreground
from mcjax_launch.options import features as declared
from mcjax_launch.request import ready
from mcjax_launch.wire import exit_status
from mcjax_launch.wire.exit_status import ENDING, get_signal_name
from mcjax_launch.wire.timers import scale_time
from mcjax_launch.wire.value import Value

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from mcjax_launch.launcher.front import Front
    from mcjax_launch.options.options import Options


class WatcherLink:
    """Link of a run's launcher to the watching process.

    Args:
        end: connection to the watching process.
        is_held: True if the run must wait for its release.

    Attributes:
        signals: the watching process's signals, as it forwards them, and this process's SIGCHLD.
        pid: process id of the watching process, to which users send signals.
        say, note: print a line of the launcher about saves; `note` prints nothing with --quiet.
        on_save: called with the reason to end the run.

    """

    def __init__(self, end: Connection, *, is_held: bool) -> None:
        self.signals = SignalPipe()
        self.pid = os.getppid()
        self.is_held = is_held
        self.say: Callable[[str], object] = _ignore
        self.note: Callable[[str], object] = _ignore
        self.on_save: Callable[[StopReason], object] = _ignore
        self._end = end
        self._waiting: list[Callable[[], object]] = []
        # A terminal sends its signals to this process too, and they must not count twice.
        self._own_signals = Signals([signal.SIGCHLD])

    def attend(self, front: Front) -> None:
        """Carry out orders in this front's loop; before the release write none of its outputs."""
        front.loop.watch(self._end.fileno(), READ, lambda ready: self._obey())
        front.loop.watch(self._own_signals.fd, READ, lambda ready: self._read_own_signals())
        for output in front.open_outputs(lambda: None) if self.is_held else ():
            output.hold(files=True)
            self._waiting.append(output.release)

    def call_after_release(self, call: Callable[[], object]) -> None:
        """Call a function once the run is released; at once if it is not held."""
        if self.is_held:
            self._waiting.append(call)
        else:
            call()

    def leave_if_held(self) -> None:
        """End this process if its run is dropped, or cannot be prepared: the next start says so."""
        if self.is_held:
            os._exit(0)

    def report(self, **fields: object) -> None:
        """Tell the watching process something about the run."""
        send(self._end, fields)

    def _read_own_signals(self) -> None:
        if signal.SIGCHLD in self._own_signals.read():
            self.signals.put(signal.SIGCHLD)

    def _obey(self) -> None:
        match receive(self._end):
            case None:  # the watching process was killed; agents end as after our own death
                os._exit(exit_status.compute_signal_status(signal.SIGKILL))
            case {"signal": number}:
                self.signals.put(number)
            case {"release": True}:
                self.is_held = False
                for call in self._waiting:
                    call()
            case {"saved": changed}:
                stop = saved(changed)
                self.note(stop.message)
                self.on_save(stop)
            case {"say": line}:
                self.say(line)


def saved(changed: str) -> StopReason:
    """Return the reason to end a job whose files have been saved.

    Args:
        changed: description of the saved files, to begin the message.

    """
    status = exit_status.compute_signal_status(signal.SIGTERM)
    return StopReason(f"{changed}: starting again", status, saved=True)


def send(end: Connection, fields: dict[str, Any]) -> None:
    """Send an order or a report; do nothing if the other process has ended."""
    try:
        end.send(fields)
    except OSError:
        pass


def receive(end: Connection) -> dict[str, Any] | None:
    """Return an order or a report that has arrived; None if the other process has ended."""
    try:
        return dict(end.recv())
    except (EOFError, OSError):
        return None


def _ignore(_: object) -> None:
    """Do nothing: no job runs yet, or not any more."""


_MOST_TYPED = 4096
# Seconds from the start of a run's ranks until the next run is begun: their own start comes first.
_NEXT_AFTER_S = scale_time(0.4)

Say = Callable[[str], object]
#: Runs a job in this process, a fork, and returns the exit status.
RunJob = Callable[[Job, tuple[Host, ...], Front], int]


class Run(Value):
    """A run of the job in a process of its own.

    Args:
        job, hosts: what it runs, and where.
        pid: its process.
        end: this process's end of the connection to it.

    """

    job: Job
    hosts: tuple[Host, ...]
    pid: int
    end: Connection

    def is_of(self, job: Job, hosts: tuple[Host, ...]) -> bool:
        """Return whether this run, begun earlier, is what would be begun now.

        Modules of the user's own that --preload has imported may have been saved.
        """
        mine = self.job.copy_with(suggest_program=job.suggest_program)
        mine = declared.change(mine, setup_done=declared.get(job, "setup_done"))
        is_same = (job, hosts) == (mine, self.hosts)
        return is_same and declared.get(job, "preload") in (None, (), ("auto",))

    def send(self, **order: object) -> None:
        """Send an order."""
        send(self.end, order)


class Watcher:
    """The process that watches files and starts the runs, until a signal ends --watch.

    Args:
        read_options: returns the job's options, by the present file of the project.
        run: runs a job.
        say: prints a line of the launcher.

    Raises:
        LaunchError: the job cannot be started the first time.

    """

    def __init__(self, read_options: Callable[[], Options], run: RunJob, say: Say) -> None:
        self._read_options, self._run_job, self._say = read_options, run, say
        self._note_once = cache(self._note)  # not again what has been printed
        self._is_quiet = False
        self._setup_done: dict[str | None, Any] = {}  # what a slow --setup has set, by command
        self._runs: list[Run] = []  # all that have a process
        self._current: Run | None = None
        self._next: Run | None = None  # waits for its release
        self._status: int | None = None  # the end's, once it is known
        self._ends_by = 0  # signal that ends all
        self._prepared = self._prepare()
        job, _ = self._prepared
        watched, without = find_watched(job), list_written_paths(job)
        self._saves = Saves(watched, without, job.python, self._tell, self._on_due)
        self._begin_next = OneShotTimer(0.0, self._begin_early)
        self._begin_next.deadline = None
        self._front = make_own_front()
        self._front.loop.watch(self._saves.fd, READ, lambda ready: self._saves.read())

    def run(self) -> int:
        """Run the job, and again after each save, until a signal; return the exit status."""
        loop = self._front.loop
        out, _ = self._front.open_outputs(lambda: None)
        out.watch(lambda error: self._stop(signal.SIGPIPE))
        loop.watch(self._front.signals.fd, READ, lambda ready: self._read_signals())
        self._current = self._fork(is_held=False)
        while self._status is None or self._runs:
            loop.run_once((self._saves, self._begin_next))
            if self._current is None and self._saves.is_ready and self._status is None:
                self._start()
        return self._status

    # --- runs ---

    def _prepare(self) -> tuple[Job, tuple[Host, ...]]:
        """Return the job and its hosts, by the present files."""
        options = self._read_options()
        self._is_quiet = options.quiet
        return ready.prepare(options, os.environ, self._note_once)

    def _start(self) -> None:
        """Start the job: release the next run, if what it was prepared from still holds."""
        self._saves.begin()
        self._front.loop.forget(0)
        try:
            self._prepared = self._prepare()
        except LaunchError as error:
            self._say(str(error))
            self._await_save()
            return
        prepared, self._next = self._next, None
        if prepared is not None and prepared.is_of(*self._prepared):
            self._current = prepared
            prepared.send(release=True)
            return
        if prepared is not None:
            prepared.send(signal=signal.SIGINT)
        self._current = self._fork(is_held=False)

    def _begin_early(self) -> None:
        """Begin the next run, which waits for a save."""
        if self._next is None and not self._ends_by:
            self._next = self._fork(is_held=True)

    def _fork(self, *, is_held: bool) -> Run:
        """Begin a run of the job; the new process runs it, and exits."""
        job, hosts = self._prepared
        done = self._setup_done.get(declared.get(job, "setup"))
        job = declared.change(job, setup_done=done)
        ours, theirs = Pipe()
        if not (pid := os.fork()):
            status = exit_status.INTERNAL_ERROR
            try:
                for end in (ours, *(run.end for run in self._runs)):
                    end.close()
                front = self._front.make_for(WatcherLink(theirs, is_held=is_held))
                status = self._run_job(job, hosts, front)
            finally:
                os._exit(status)
        theirs.close()
        run = Run(job, hosts, pid, ours)
        self._runs.append(run)
        self._front.loop.watch(ours.fileno(), READ, lambda ready: self._read_report(run))
        return run

    def _read_report(self, run: Run) -> None:
        """Read that the ranks of a run have started, or what its --setup has set."""
        match receive(run.end):
            case None:
                self._front.loop.forget(run.end.fileno())
            case {"setup": done}:
                self._setup_done[declared.get(run.job, "setup")] = done
            case {"started": True} if run is self._current:
                self._begin_next.deadline = time.monotonic() + _NEXT_AFTER_S

    def _reap(self) -> None:
        for run in self._runs[:]:
            pid, status = os.waitpid(run.pid, os.WNOHANG)
            if not pid:
                continue
            self._runs.remove(run)
            self._front.loop.forget(run.end.fileno())
            run.end.close()
            if run is self._next:
                self._next = None  # a host is gone, or has refused: the next start says so
            elif run is self._current:
                self._current = None
                self._on_end(os.waitstatus_to_exitcode(status))

    def _on_end(self, code: int) -> None:
        """Handle the end of the current run."""
        if code < 0:
            self._say(f"the run was killed by {get_signal_name(-code)}")
        if self._ends_by and self._saves.is_due:  # the save has ended the run
            self._stop(self._ends_by)
        elif self._ends_by:  # the run may have ended by itself just then
            self._end(exit_status.compute_exit_status(code))
        elif not self._saves.is_ready:
            self._await_save()

    def _stop(self, signum: int) -> None:
        """End --watch, for a signal or because nobody reads, once the current run is over."""
        self._ends_by = self._ends_by or signum
        if self._current is None and self._status is None:
            if signum != signal.SIGPIPE:
                self._say(stop_reasons.interrupted(signum).message)
            self._end(0)

    def _end(self, status: int) -> None:
        """End --watch once no run is left."""
        self._status = status or exit_status.compute_signal_status(self._ends_by)
        for run in self._runs:
            run.send(signal=signal.SIGINT)

    # --- saves ---

    def _on_due(self, changed: str) -> None:
        """End the run after a save; the next one starts when it is over."""
        if self._current is not None:
            self._current.send(saved=changed)
        else:
            self._note(saved(changed).message)

    def _tell(self, line: str) -> None:
        """Print a line, by the run that has the terminal."""
        if self._current is not None:
            self._current.send(say=line)
        else:
            self._say(line)

    def _await_save(self) -> None:
        """Print that a save is awaited, if none has come yet; run again after Enter."""
        if at_terminal := is_in_foreground(0):
            termios.tcflush(0, termios.TCIFLUSH)  # what was typed while the job ran
            self._front.loop.watch(0, READ, lambda ready: self._read_key())
        if self._saves.deadline is None:
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
            for run in self._runs:
                if run is not self._next or self._status is not None:
                    run.send(signal=signum)
            if signum in ENDING:
                self._stop(signum)
            elif signum == signal.SIGTSTP and self._current is None:
                os.kill(os.getpid(), signal.SIGSTOP)
            elif signum == signal.SIGCONT and self._current is not None:
                os.kill(self._current.pid, signum)  # it has stopped itself, and this process

    def _read_key(self) -> None:
        """Run again after Enter."""
        if not is_in_foreground(0) or not (typed := os.read(0, _MOST_TYPED)):
            self._front.loop.forget(0)  # the shell's, or its end
        elif b"\n" in typed:
            self._saves.is_due = True

"""Running job: its launcher process, and the thread that reads the launcher's reports."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TextIO

from mcjax_launch.errors import LaunchError
from mcjax_launch.python.events import Reporter
from mcjax_launch.python.process import LauncherProcess, Request, hold_signals
from mcjax_launch.python.result import Result, make_result
from mcjax_launch.python.streams import Consumer, Echo, EventLines, LastWords, read_all
from mcjax_launch.wire.exit_status import INTERNAL_ERROR, compute_exit_status
from mcjax_launch.wire.signals import get_signal_name

if TYPE_CHECKING:
    from mcjax_launch.python.values import RankValues

# Of the time that a program's end takes at most, for each job that still runs then.
_LAST_S = 15.0


class RunningJob:
    """Job started by `mcjax_launch.start`.

    Call `wait` for its end, or `await` it: a cancelled await ends the job. As a context manager it
    stops the job, if still running, at the end of the block. Every method may be called from any
    thread.
    """

    def __init__(
        self,
        name: str,
        request: Request,
        streams: tuple[Callable[[], TextIO], ...] | None,
        reporter: Reporter,
        returned: RankValues | None = None,
    ) -> None:
        self._name = name
        self._request = request
        self._echoes = tuple(map(Echo, streams or ()))
        self._reporter = reporter
        reporter.on_failed = lambda: self.send_signal(signal.SIGINT)
        self._returned = returned
        self._ranks = 0
        self._result: Result | None = None
        self._error: BaseException | None = None
        # The job's thread, which no Ctrl-C interrupts, starts the launcher and reads from it.
        self._process: LauncherProcess | None = None
        # What has not been sent: signals; None stands for an end at once.
        self._signals: deque[int | None] = deque()
        self._is_over = False
        self._when_over: list[Callable[[], object]] = []
        self._lock = threading.Lock()
        self._working = threading.Lock()  # held until the job is over
        self._begun = threading.Lock()  # held until something is known of it
        self._begun.acquire()

    # --- for the caller ---

    @property
    def done(self) -> bool:
        """True if the job has ended and none of its processes is left."""
        return self._is_over

    @property
    def ranks(self) -> int:
        """Number of the job's ranks; 0 before it has begun."""
        return self._ranks

    def wait(self, timeout: float | None = None) -> Result:
        """Wait for the end of the job; return its result.

        Args:
            timeout: limit in seconds; None for no limit.

        Raises:
            TimeoutError: the job still runs, and goes on.
            LaunchError: the job could not be started.

        """
        if not self.done:
            if not self._working.acquire(timeout=-1 if timeout is None else max(0, timeout)):
                raise TimeoutError(f"the job still runs after {timeout:g} s")
            self._working.release()
        return self._get_result()

    def stop(self, *, now: bool = False) -> None:
        """End the job, without waiting for its end.

        The ranks get SIGTERM, and SIGKILL after the grace (keyword `grace`, by default 30 s).

        Args:
            now: True to kill the ranks at once.

        """
        self._send(None if now else signal.SIGTERM)

    def send_signal(self, signum: int) -> None:
        """Handle a signal as the command mcjax-launch would; do nothing if the job has ended.

        Args:
            signum: SIGINT, SIGTERM and SIGHUP end the job, a second one at once; SIGUSR1 and
                SIGUSR2 go to the ranks; SIGQUIT shows the stacks of all ranks: in events of
                the kind "note", and on sys.stderr with `echo`.

        """
        self._send(signum)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not self.done:
            self.end(signal.SIGTERM if error is None else signal.SIGINT)

    def __await__(self) -> Generator[Any, None, Result]:
        return self._wait_async().__await__()

    def __repr__(self) -> str:
        state = "over" if self.done else "running"
        return f"<RunningJob: {self._name} on {self._ranks} ranks, {state}>"

    # --- for the other modules here ---

    def begin(self) -> Self:
        """Start the job in a thread and return at once; an exception here ends the job."""
        _running.add(self)
        try:
            threading.Thread(target=self._run, name="mcjax-launch", daemon=True).start()
        except BaseException:
            self.end(signal.SIGINT)
            raise
        return self

    def start(self) -> Self:
        """Start the job, and return when it has begun; an exception here ends the job.

        Raises:
            LaunchError: the job was refused before it began.

        """
        self.begin()
        try:
            self._begun.acquire()
            if self._error is not None:
                raise self._error
        except BaseException:
            self.end(signal.SIGINT)
            raise
        return self

    def run(self) -> Result:
        """Start the job and return its result; an exception during the wait ends the job."""
        try:
            return self.start().wait()
        except BaseException:
            self.end(signal.SIGINT)
            raise

    def end_lines(self, rank: int) -> None:
        """Report a rank's unfinished lines to `on_line`; called in the job's thread."""
        self._reporter.end_lines(rank)

    def abandon(self) -> None:
        """Kill the ranks without a word on it."""
        self._reporter.mute()
        for echo in self._echoes:
            echo.is_muted = True
        self.stop(now=True)

    def end_with_program(self) -> None:
        """Kill the ranks because this program ends; ranks that wait for calls without a word."""
        if self._request.calls is not None:
            self.abandon()
        else:
            self.stop(now=True)

    def discard(self) -> None:
        """Kill the ranks without a word on it, and wait until no process of the job is left."""
        self.abandon()
        with contextlib.suppress(Exception):  # nobody asks how it has ended
            self.wait()

    def end(self, signum: int) -> None:
        """End the job with a signal, and wait until none of its processes is left.

        KeyboardInterrupt during the wait sends the signal again, which ends the job at once.
        """
        while not self.done:
            with contextlib.suppress(KeyboardInterrupt):
                self.send_signal(signum)
                with self._working:  # the job is over, or has not begun
                    self._close()

    def disown(self) -> None:
        """Make this object unusable in a fork of the process that started the job."""
        if self._process is not None:
            self._process.close()
        if self._request.calls is not None:
            self._request.calls.close()
        self._lock = threading.Lock()  # a thread that is not here may have held it
        self._error = LaunchError(
            "the job belongs to the parent process, from which this process was forked"
        )
        self._is_over = True

    # --- asyncio ---

    async def _wait_async(self) -> Result:
        import asyncio  # needed by its users only

        loop, over = asyncio.get_running_loop(), asyncio.Event()

        def set_over() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(over.set)

        self.call_when_over(set_over)
        try:
            await over.wait()
        except asyncio.CancelledError:
            while not self.done:
                self.send_signal(signal.SIGINT)
                with contextlib.suppress(asyncio.CancelledError):
                    await over.wait()
            raise
        return self._get_result()

    def call_when_over(self, call: Callable[[], object]) -> None:
        """Call a function when the job is over, in the job's thread; now if it is over already."""
        with self._lock:
            if not self._is_over:
                self._when_over.append(call)
                return
        call()

    # --- the job's own thread ---

    def _run(self) -> None:
        with self._working:
            if self._is_over:  # it was ended before it began
                return
            try:
                self._run_launcher()
            except BaseException as error:
                self._error = error
            finally:
                self._close()

    def _run_launcher(self) -> None:
        hold_signals()
        process = self._process = LauncherProcess(self._request)
        self._send_signals()
        last_words = LastWords()
        readers: dict[int, Consumer] = {}
        if process.stdout is not None and self._echoes:
            readers[process.stdout] = self._echoes[0]
        readers[process.stderr] = self._echoes[1] if self._echoes else last_words
        readers[process.events] = EventLines(self._on_event)
        if process.values is not None and self._returned is not None:
            readers[process.values] = self._returned  # after the output that came before
        try:
            read_all(readers, process.forget)
        finally:
            process.close()
            status = process.wait()
        if self._result is None and self._error is None:
            self._error = _make_early_end_error(status, last_words.line)

    def _on_event(self, event: dict[str, Any]) -> None:
        """Update the job from an event of the launcher, and report the event to the caller."""
        match event:
            case {"event": "job", "ranks": int(ranks)}:
                self._ranks = ranks
                self._note_begun()
            case {"event": "summary", "ranks": _}:
                self._result = make_result(event)
            case {"event": "summary", "message": message, "exit_status": status}:
                self._error = LaunchError(message, status)
        self._reporter.report(event)

    def _note_begun(self) -> None:
        with contextlib.suppress(RuntimeError):  # it is known
            self._begun.release()

    def _send(self, signum: int | None) -> None:
        if not self.done:
            self._signals.append(signum)
            self._send_signals()

    def _send_signals(self) -> None:
        process = self._process
        while process is not None and self._signals:
            with contextlib.suppress(IndexError):  # another thread has sent it
                signum = self._signals.popleft()
                if signum is None:
                    process.abandon()
                else:
                    process.send_signal(signum)

    def _close(self) -> None:
        _running.discard(self)
        if self._request.calls is not None:
            self._request.calls.close()
        with self._lock:
            self._is_over = True
            calls, self._when_over = self._when_over, []
        self._note_begun()
        for call in calls:
            call()

    def _get_result(self) -> Result:
        error = self._reporter.failed or self._error
        if error is not None:
            raise error
        assert self._result is not None
        return self._result


def _make_early_end_error(status: int, last_line: str) -> LaunchError:
    """Return the error for a launcher that ended without reporting the job's end.

    Args:
        status: status of its process; -n if signal n ended it.
        last_line: last line that it printed to stderr; "" if none.

    """
    how = f"killed by {get_signal_name(-status)}" if status < 0 else f"exit status {status}"
    why = last_line.removeprefix("mcjax-launch: ") or how
    return LaunchError(
        f"mcjax-launch has ended: {why}", compute_exit_status(status) or INTERNAL_ERROR
    )


_running: set[RunningJob] = set()


def _end_all() -> None:
    """Kill all jobs and wait for their ends, because the program ends."""
    jobs = list(_running)
    for job in jobs:
        job.end_with_program()
    deadline = time.monotonic() + _LAST_S
    for job in jobs:
        with contextlib.suppress(TimeoutError, Exception):
            job.wait(max(0.0, deadline - time.monotonic()))


def _disown_all() -> None:
    """Make the parent's jobs unusable in this process, a fork."""
    for job in list(_running):
        job.disown()
    _running.clear()


atexit.register(_end_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disown_all)

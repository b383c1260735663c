"""Running job: the launcher process that this program has started, and the reports that come back.

A thread starts the launcher and reads from it; no Ctrl-C interrupts that thread.
"""

from __future__ import annotations

import atexit
import codecs
import contextlib
import fcntl
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from io import FileIO
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TextIO

from mcjax_launch.errors import LaunchError
from mcjax_launch.machine.system import format_limit_error
from mcjax_launch.python.result import Event, Line, OnEvent, OnLine, Result, Stream, make_result
from mcjax_launch.transport.early import CLIENT
from mcjax_launch.wire.exit_status import (
    ENDING,
    FORWARDED,
    INTERNAL_ERROR,
    compute_exit_status,
    get_signal_name,
)
from mcjax_launch.wire.line import send
from mcjax_launch.wire.value import Value
from mcjax_launch.wording import escape_unprintable

if TYPE_CHECKING:
    from mcjax_launch.wire.codec import Message

# The package comes from the folder that this program has it from, wherever that is; all others
# come from there only if they are nowhere else: it may hold modules named as Python's own.
_MAIN = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); import mcjax_launch; "
    "sys.path.append(sys.path.pop(0)); from mcjax_launch.__main__ import run; run()"
)
_FOLDER = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_FIRST_FREE = 3  # after stdin, stdout and stderr
_MOST_AT_ONCE = 1 << 20
# So many bytes of an unfinished line are kept; then they are reported as a line.
_LONGEST = 1 << 20
_LAST_BYTES = 4096
# Of the time that a program's end takes at most, for each job that still runs then.
_LAST_S = 15.0

#: Processes bytes of a buffer that is reused after the call; returns False to stop reading.
Feed = Callable[[memoryview], bool]


class Request(Value):
    """Command line of a launcher, and the reports that this program wants from it.

    Args:
        name: name of the program, for messages.
        words: arguments of the launcher's command line.
        hosts: lines of a hosts list that was not given as a file; empty if there is none.
        echoes: functions that return the streams to print the launcher's output to, at each
            write; empty for none.
        hears_output: True if the ranks' output is to come as events.
        on_values: processes what calls return; None if the ranks make no calls.

    """

    name: str
    words: tuple[str, ...]
    hosts: tuple[str, ...]
    echoes: tuple[Callable[[], TextIO], ...]
    hears_output: bool
    on_values: Feed | None


class RunningJob:
    """Job started by `mcjax_launch.start`.

    Call `wait` for its end. As a context manager it stops the job, if still running, at the end of
    the block. Every method may be called from any thread.
    """

    def __init__(self, request: Request, reporter: Reporter) -> None:
        self._request = request
        self._reporter = reporter
        reporter.on_failed = lambda: self.send_signal(signal.SIGINT)
        self._echoes = tuple(map(Echo, request.echoes))
        self._ranks = 0
        self._result: Result | None = None
        self._error: BaseException | None = None
        self._launcher: _Launcher | None = None
        self._signals: deque[int] = deque()  # that have not been sent
        self._is_abandoned = False
        self._is_over = False
        self._line = bytearray()  # of events, which is not complete
        self._last_words = b""  # of the launcher on stderr: why it ended without a summary
        self._working = threading.Lock()  # held until the job is over
        self._begun = threading.Event()  # something is known of it
        #: Called in the job's thread when the job is over.
        self.on_over: Callable[[], object] = lambda: None

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
        if (error := self._reporter.failed or self._error) is not None:
            raise error
        assert self._result is not None
        return self._result

    def stop(self, *, now: bool = False) -> None:
        """End the job, without waiting for its end.

        The ranks get SIGTERM, and SIGKILL after the grace (keyword `grace`, by default 30 s).

        Args:
            now: True to kill the ranks at once.

        """
        if not now:
            self.send_signal(signal.SIGTERM)
            return
        self._is_abandoned = True
        if self._launcher is not None:
            self._launcher.life.close()

    def send_signal(self, signum: int) -> None:
        """Handle a signal as the command mcjax-launch would; do nothing if the job has ended.

        Args:
            signum: SIGINT, SIGTERM and SIGHUP end the job, a second one at once; SIGUSR1 and
                SIGUSR2 go to the ranks; SIGQUIT shows the stacks of all ranks: in events of
                the kind "note", and on sys.stderr with `echo`.

        """
        if not self.done:
            self._signals.append(signum)
            self._send_signals()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.end(signal.SIGTERM if error is None else signal.SIGINT)

    def __repr__(self) -> str:
        state = "over" if self.done else "running"
        return f"<RunningJob: {self._request.name} on {self._ranks} ranks, {state}>"

    # --- for the other modules here ---

    def start(self) -> Self:
        """Start the job, and return when it has begun; an exception here ends the job.

        Raises:
            LaunchError: the job was refused before it began.

        """
        _running.add(self)
        try:
            threading.Thread(target=self._run, name="mcjax-launch", daemon=True).start()
            self._begun.wait()
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

    def send(self, message: Message, descriptors: Sequence[int] = ()) -> None:
        """Send the launcher a message about calls; drop it if the launcher is gone."""
        if self._launcher is not None and self._launcher.calls is not None:
            send(self._launcher.calls, message, descriptors)

    def end_lines(self, rank: int) -> None:
        """Report a rank's unfinished lines to `on_line`; called in the job's thread."""
        self._reporter.end_lines(rank)

    def abandon(self) -> None:
        """Kill the ranks without a word on it."""
        self._reporter.mute()
        for echo in self._echoes:
            echo.is_muted = True
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
        if self._launcher is not None:
            self._launcher.close()
        self._error = LaunchError(
            "the job belongs to the parent process, from which this process was forked"
        )
        self._is_over = True

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
        # A launcher begins with the signals blocked that it handles.
        signal.pthread_sigmask(signal.SIG_BLOCK, [*ENDING, *FORWARDED, signal.SIGQUIT])
        launcher = self._launcher = _Launcher(self._request)
        self._send_signals()
        if self._is_abandoned:
            launcher.life.close()
        files = (launcher.process.stdout, launcher.process.stderr)
        feeds: dict[Any, Feed] = {launcher.process.stderr: self._keep_last_words}
        feeds |= {file: echo.feed for file, echo in zip(files, self._echoes, strict=False)}
        feeds[launcher.events] = self._read_events
        if self._request.on_values is not None:
            feeds[launcher.values] = self._request.on_values  # after the output that came before
        try:
            _read_all(feeds)
        finally:
            launcher.close()
            status = launcher.process.wait()  # 0 if this program ignores its children
        if self._result is None and self._error is None:
            self._error = _make_early_end_error(status, self._last_words)

    def _keep_last_words(self, data: memoryview) -> bool:
        self._last_words = (self._last_words + data)[-_LAST_BYTES:]
        return True

    def _read_events(self, data: memoryview) -> bool:
        *lines, rest = bytes(data).split(b"\n")
        for line in lines:
            self._on_event(json.loads(self._line + line))
            self._line.clear()
        self._line += rest
        return True

    def _on_event(self, event: dict[str, Any]) -> None:
        """Update the job from an event of the launcher, and report the event to the caller."""
        match event:
            case {"event": "job", "ranks": int(ranks)}:
                self._ranks = ranks
                self._begun.set()
            case {"event": "summary", "ranks": _}:
                self._result = make_result(event)
            case {"event": "summary", "message": message, "exit_status": status}:
                self._error = LaunchError(message, status)
        self._reporter.report(event)

    def _send_signals(self) -> None:
        while self._launcher is not None and self._signals:
            with contextlib.suppress(IndexError):  # another thread has sent it
                self._launcher.process.send_signal(self._signals.popleft())

    def _close(self) -> None:
        _running.discard(self)
        self._is_over = True
        self._begun.set()
        self.on_over()


def _make_early_end_error(status: int, last_words: bytes) -> LaunchError:
    """Return the error for a launcher that ended without reporting the job's end.

    Args:
        status: status of its process; -n if signal n ended it.
        last_words: end of what it printed to stderr.

    """
    last_line = (last_words.decode("utf-8", "replace").strip().splitlines() or [""])[-1]
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
        job.abandon()
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
os.register_at_fork(after_in_child=_disown_all)


# --- the launcher's process ---


class _Launcher:
    """Launcher that this program has started, in a new session.

    Args:
        request: the launcher's command line, and the wanted reports.

    Attributes:
        process: its process; `stdout` is None without echoes.
        events: file to read the launcher's events from.
        values: file to read what the ranks' calls return from; None if they make none.
        calls: socket over which calls go to it; None if the ranks make none.
        life: file that nobody writes to: the launcher ends the job at once when it is closed.

    Raises:
        LaunchError: the launcher cannot be started.

    """

    events: FileIO
    life: FileIO

    def __init__(self, request: Request) -> None:
        self.values: FileIO | None = None
        self.calls: socket.socket | None = None
        self._ours = contextlib.ExitStack()
        try:
            with contextlib.ExitStack() as theirs:
                self.process = self._start(request, theirs)
        except (OSError, ValueError) as error:  # ValueError: a null byte in a word
            self.close()
            why = format_limit_error(error) if isinstance(error, OSError) else str(error)
            raise LaunchError(f"mcjax-launch cannot be started: {why}") from None
        except BaseException:
            self.close()
            raise

    def _start(self, request: Request, theirs: contextlib.ExitStack) -> subprocess.Popen[bytes]:
        """Start the launcher; `theirs` closes its ends here."""
        if not sys.executable:
            raise LaunchError("sys.executable is empty: there is no Python to run mcjax-launch")
        life, self.life = self._make_pipe(theirs, ours=1)
        self.events, events = self._make_pipe(theirs)
        shared = {"life": life.fileno()}
        if request.on_values is not None:
            self.values, values = self._make_pipe(theirs)
            ends = [_move_from_standard(end.detach()) for end in socket.socketpair()]
            self.calls = self._ours.enter_context(socket.socket(fileno=ends[0]))
            theirs.callback(os.close, ends[1])
            shared |= {"values": values.fileno(), "calls": ends[1]}
        wanted = {
            "echoes": bool(request.echoes),
            "hears_output": request.hears_output,
            "hosts": request.hosts,
        }
        command = [sys.executable, "-P", "-c", _MAIN, _FOLDER, "--events", f"fd:{events.fileno()}"]
        process = subprocess.Popen(
            [*command, *request.words],
            bufsize=0,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if request.echoes else subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={**os.environ, CLIENT: json.dumps({**shared, **wanted})},
            pass_fds=(events.fileno(), *shared.values()),
            start_new_session=True,
        )
        for file in filter(None, (process.stdout, process.stderr)):
            self._ours.enter_context(file)
        return process

    def _make_pipe(self, theirs: contextlib.ExitStack, *, ours: int = 0) -> tuple[FileIO, FileIO]:
        """Return the reading and the writing end of a new pipe, of which one stays open here."""
        reads, writes = map(_move_from_standard, os.pipe())
        ends = FileIO(reads, "rb"), FileIO(writes, "wb")
        self._ours.enter_context(ends[ours])
        theirs.enter_context(ends[1 - ours])
        return ends

    def close(self) -> None:
        """Close all that leads to the launcher."""
        self._ours.close()


def _move_from_standard(fd: int) -> int:
    """Return `fd`, or its copy from 3 on in its place: the launcher gets its own 0, 1 and 2.

    A program that has closed its standard descriptors gets these numbers for the next files.
    """
    if fd >= _FIRST_FREE:
        return fd
    moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _FIRST_FREE)
    os.close(fd)
    return moved


def _read_all(feeds: Mapping[Any, Feed]) -> None:
    """Read from files until their writers have closed all of them.

    Args:
        feeds: function for the bytes of each file, which is closed if no more is wanted.

    """
    buffer = memoryview(bytearray(_MOST_AT_ONCE))
    poll = select.poll()
    files = {file.fileno(): file for file in feeds}
    for fd in files:
        poll.register(fd, select.POLLIN)
    while files:
        for fd, _ in poll.poll():
            count = os.readv(fd, [buffer])
            if not count or not feeds[files[fd]](buffer[:count]):
                poll.unregister(fd)
                files.pop(fd).close()


class Echo:
    """Writer of bytes to a text stream such as sys.stdout, maybe a notebook's.

    Args:
        get_stream: returns the stream, which is flushed after each write: sys.stdout may change.

    Attributes:
        is_muted: True to drop the bytes.

    """

    def __init__(self, get_stream: Callable[[], TextIO]) -> None:
        self.is_muted = False
        self._get_stream = get_stream
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, data: memoryview) -> bool:
        if self.is_muted:
            return True
        text = self._decoder.decode(data)
        stream = self._get_stream()
        try:
            try:
                stream.write(text)
            except UnicodeEncodeError as error:  # the stream takes ASCII, for example
                encoded = text.encode(error.encoding, "backslashreplace")
                stream.write(encoded.decode(error.encoding))
            stream.flush()
        except (OSError, ValueError):  # its reader is gone, or it has been closed
            return False
        return True


# --- for the caller's functions ---


class Reporter:
    """Translator of a launcher's events into Lines and Events for the caller.

    Args:
        on_line: called with each Line; None if the caller wants none.
        on_event: called with each Event; None if the caller wants none.
        levels: levels of the launcher's lines to report as "note"; see `journal/stream.py`.

    Attributes:
        failed: exception that a call has raised, after which no calls follow; else None.
        on_failed: called when a call has raised an exception.

    """

    def __init__(
        self, on_line: OnLine | None, on_event: OnEvent | None, levels: Sequence[str] = ()
    ) -> None:
        self.failed: BaseException | None = None
        self.on_failed: Callable[[], object] = lambda: None
        self._on_line = on_line
        self._on_event = on_event
        self._levels = levels
        self._hosts: dict[int, str] = {}
        self._unfinished: dict[tuple[int, Stream], bytearray] = {}

    def mute(self) -> None:
        """Report nothing from now on."""
        self._on_line = self._on_event = None

    def report(self, event: dict[str, Any]) -> None:
        """Report an event to the caller, if it is of interest to callers."""
        match event:
            case {"event": "output", "rank": rank, "stream": stream, "text": text}:
                self._add_output(rank, stream, text.encode("utf-8", "surrogateescape"))
            case {"event": "started", "rank": rank, "host": host, "pid": pid}:
                self._hosts[rank] = host
                self._report_event(Event("started", rank, host, pid=pid))
            case {"event": "ended", "rank": rank, "host": host, "message": words} as ended:
                self._report_event(
                    Event("ended", rank, host, words, exit_status=ended["exit_status"])
                )
            case {"event": "joining" | "joined" | "failed" as kind, "rank": rank, "host": host}:
                self._report_event(Event(kind, rank, host, event.get("message", "")))
            case {"event": "note", "text": text, "level": level} if level in self._levels:
                for line in text.split("\n"):
                    self._report_event(Event("note", text=escape_unprintable(line)))
            case {"event": "restart" | "summary"}:
                self.end_lines()

    def _add_output(self, rank: int, stream: Stream, data: bytes) -> None:
        held = self._unfinished.setdefault((rank, stream), bytearray())
        *whole, rest = (bytes(held) + data).split(b"\n")
        held[:] = rest
        for line in whole:
            self._report_line(rank, stream, line)
        while len(held) > _LONGEST:
            self._report_line(rank, stream, bytes(held[:_LONGEST]))
            del held[:_LONGEST]

    def end_lines(self, of: int | None = None) -> None:
        """Report the unfinished lines of a rank; None for all."""
        for (rank, stream), rest in self._unfinished.items():
            if rest and of in (None, rank):
                self._report_line(rank, stream, bytes(rest))
                rest.clear()

    def _report_line(self, rank: int, stream: Stream, line: bytes) -> None:
        if self._on_line is not None:
            text = line.decode("utf-8", "replace")
            self._call(self._on_line, Line(rank, self._hosts.get(rank, ""), stream, text))

    def _report_event(self, event: Event) -> None:
        if self._on_event is not None:
            self._call(self._on_event, event)

    def _call(self, call: Callable[[Any], object], value: Line | Event) -> None:
        if self.failed is not None:
            return
        try:
            call(value)
        except BaseException as error:
            self.failed = error
            self.on_failed()

"""A job under way in a program: a thread of its own runs the launcher, and what that is lent."""

from __future__ import annotations

import atexit
import codecs
import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Generator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TextIO

# What each job's thread needs: a fork of the program would keep for ever what is half imported.
import mcjax_launch.kernel.launcher.restarts
import mcjax_launch.report.recording  # noqa: F401
from mcjax_launch.api.events import Reporter
from mcjax_launch.api.result import Result, made
from mcjax_launch.diagnosis.attempt import Attempt
from mcjax_launch.errors import LaunchError
from mcjax_launch.events.sink import Target
from mcjax_launch.job.hosts import Host
from mcjax_launch.job.job import Job
from mcjax_launch.kernel.launcher.front import Front
from mcjax_launch.kernel.wire import system
from mcjax_launch.kernel.wire.exit_status import HOST_LOST
from mcjax_launch.kernel.wire.loop import Loop, SignalPipe
from mcjax_launch.request.ready import run

if TYPE_CHECKING:
    from mcjax_launch.kernel.transport.pipes import Pipes

# --- what a launcher has of a process that is not its own ---

# Where nothing waits for a child without reaping it: how often the launcher looks.
_LOOK_S = 0.1


class Text(Target):
    """A text stream of the caller's, such as sys.stdout, which may be a notebook's.

    Args:
        stream: is written and flushed at once.

    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._on_gone: Callable[[OSError | None], None] = lambda error: None

    def watch(self, on_gone: Callable[[OSError | None], None]) -> None:
        self._on_gone = on_gone

    def write(self, pieces: Sequence[bytes | memoryview]) -> None:
        text = self._decoder.decode(b"".join(pieces))
        if self.gone or not text:
            return
        self.taken += len(text)
        try:
            self._stream.write(text)
            self._stream.flush()
        except OSError as error:
            self.gone = True
            self._on_gone(error)
        except ValueError:  # it has been closed
            self.gone = True
            self._on_gone(None)


class Embedded(Front):
    """A process of somebody else's: no handlers of signals, no descriptors, no terminal.

    A signal to the job is what the caller puts into `signals`. For each of our children, and nobody
    else's, a thread waits.

    Args:
        streams: where the console's lines go; None for nowhere.

    """

    verbose_option = "verbose=True"

    def __init__(self, streams: tuple[TextIO, TextIO] | None) -> None:
        super().__init__(Loop(), SignalPipe())
        self._streams = streams
        self._pipes: dict[int, tuple[int, int]] = {}  # what each descriptor led to
        self._lock = threading.Lock()  # the caller's thread may still write into `signals`
        self._closed = False

    def outputs(self, on_room: Callable[[], None]) -> tuple[Target, Target]:  # noqa: ARG002
        if self._streams is None:
            return Target(), Target()
        return Text(self._streams[0]), Text(self._streams[1])

    def child_started(self, pipes: Pipes) -> None:
        for fd in (pipes.to_agent, pipes.from_agent, pipes.errors):
            self._pipes[fd] = _identity(fd)
        try:
            threading.Thread(target=self._tell_of_end, args=(pipes.pid,), daemon=True).start()
        except RuntimeError as error:  # there are too many
            os.kill(pipes.pid, signal.SIGKILL)
            message = f"{error}: raise `ulimit -u`, or use fewer hosts"
            raise LaunchError(message, HOST_LOST) from None

    def _tell_of_end(self, pid: int) -> None:
        """Have the launcher, which reaps it, look when a child has ended."""
        while not self._closed:
            has_ended = system.wait_for_end(pid)
            self.put(signal.SIGCHLD)
            if has_ended:
                return
            time.sleep(_LOOK_S)

    def put(self, signum: int) -> None:
        """Take this for a signal to the launcher, unless its work is over; from any thread."""
        with self._lock:
            if not self._closed:
                self.signals.put(signum)

    def why_no_terminal(self) -> str:
        return "the job was started by a program"

    @property
    def shows_stacks(self) -> str:
        return ""

    def close(self) -> None:
        """The launcher's work is over."""
        with self._lock:
            self._closed = True
            self.loop.forget(self.signals.fd)
            self.signals.close()
            self.loop.close()

    def abandon(self) -> None:
        """Let go of the job, of which this process is not the launcher: it is a fork of that.

        A signal would reach the launcher through the pipe that both have.
        """
        self._lock = threading.Lock()  # a thread that is not here may have held it
        if not self._closed:
            self._closed = True
            self.signals.close()
            self.loop.close()  # unwatched one by one they would be unwatched in the launcher too
        for fd, identity in self._pipes.items():
            try:
                if _identity(fd) == identity:
                    os.close(fd)
            except OSError:  # it has been closed
                pass


def _identity(fd: int) -> tuple[int, int]:
    found = os.fstat(fd)
    return found.st_dev, found.st_ino


# --- the job ---

# Of the time that a program's end takes at most, for each job that still runs then.
_LAST_S = 15.0


class _Attempts:
    """The last attempt of a run, and how often it was restarted: what a Result is made of."""

    def __init__(self) -> None:
        self.last: Attempt | None = None
        self.restarts = -1

    def ended(self, attempt: Attempt) -> None:
        self.last = attempt
        self.restarts += 1

    def over(self, status: int, end: str) -> None:
        """The result says it."""


class RunningJob:
    """A job that has been started, by `mcjax_launch.start`.

    `wait` for its end, or `await` it: a cancelled await ends the job. As a context manager it
    stops the job at the end of the block, if that still runs. Every method may be called from any
    thread.
    """

    def __init__(
        self,
        job: Job,
        hosts: Sequence[Host],
        words: Sequence[str],
        streams: tuple[TextIO, TextIO] | None,
        reporter: Reporter,
    ) -> None:
        shown = job.show if streams is not None else frozenset()
        # A log of GitHub Actions is the calling program's, as its streams are.
        self._job, self._hosts = job.replaced(show=shown, on_github=False), hosts
        self._words = words
        self._streams = streams
        self._reporter = reporter
        reporter.on_failed = lambda: self.send_signal(signal.SIGINT)
        self._began_at = time.monotonic()
        self._attempts = _Attempts()
        self._result: Result | None = None
        self._error: BaseException | None = None
        # Made, used and closed by the job's thread, which no Ctrl-C interrupts.
        self._front: Embedded | None = None
        self._early: list[int] = []  # signals that came before
        self._decided: dict[str, bool] = {}
        self._is_over = False
        self._when_over: list[Callable[[], object]] = []
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="mcjax-launch", daemon=True)

    # --- for the caller ---

    @property
    def done(self) -> bool:
        """Whether it is over, and nothing of it is left."""
        return self._is_over

    def wait(self, timeout: float | None = None) -> Result:
        """Wait for its end; how it ended.

        Args:
            timeout: in seconds; None to wait as long as it takes.

        Raises:
            TimeoutError: it still runs; it goes on.
            LaunchError: it could not be started.

        """
        if not self._wait(timeout):
            raise TimeoutError(f"the job still runs after {timeout:g} s")
        return self._outcome()

    def stop(self, *, now: bool = False) -> None:
        """Have the job end; does not wait for that.

        The ranks get a SIGTERM, and SIGKILL after the grace (`grace`, 30 s as a rule).

        Args:
            now: kill them at once.

        """
        self.send_signal(signal.SIGTERM)
        if now:
            self.send_signal(signal.SIGTERM)

    def send_signal(self, signum: int) -> None:
        """Do as the command does with this signal; nothing happens if the job is over.

        Args:
            signum: SIGINT, SIGTERM and SIGHUP end the job, a second one at once; SIGUSR1 and
                SIGUSR2 go to the ranks; SIGQUIT has the stacks of all ranks said: in events of
                the kind "said", and on sys.stderr with `echo`.

        """
        with self._lock:
            if self._front is None:
                self._early.append(signum)
            else:
                self._front.put(signum)

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
        return self._awaited().__await__()

    def __repr__(self) -> str:
        name = os.path.basename(self._job.program[0])
        state = "over" if self.done else "running"
        return f"<RunningJob: {name} on {self._job.num_processes} ranks, {state}>"

    # --- for the other modules here ---

    def begin(self) -> Self:
        """Start it; what interrupts that ends it."""
        _running.add(self)
        try:
            self._thread.start()
            self._begins(True)
        except BaseException:
            self.end(signal.SIGINT)
            raise
        return self

    def run(self) -> Result:
        """Start it, and wait for its end; whatever interrupts that ends the job."""
        try:
            return self.begin().wait()
        except BaseException:
            self.end(signal.SIGINT)
            raise

    def end(self, signum: int) -> None:
        """End the job by this signal, and wait until nothing of it is left.

        Who interrupts that wants it to end now.
        """
        while not self.done:
            with contextlib.suppress(KeyboardInterrupt):
                if not self._begins(False):
                    self._close()
                else:
                    self.send_signal(signum)
                    self._wait(None)

    def let_go(self) -> None:
        """Forget the job: this process is a fork of the one that has started it."""
        self._lock = threading.Lock()  # a thread that is not here may have held it
        if self._front is not None:
            self._front.abandon()
        self._error = LaunchError("the job belongs to the process that this one is a fork of")
        self._is_over = True

    # --- its end ---

    def _begins(self, wanted: bool) -> bool:
        """Whether the job's thread does its work: who asks first decides that.

        A KeyboardInterrupt in `Thread.start` leaves open whether there will be a thread.
        """
        return self._decided.setdefault("begins", wanted)

    def _wait(self, timeout: float | None) -> bool:
        """Wait for the end; whether it has come.

        Without a threading.Event: a KeyboardInterrupt in a method of that can leave its lock
        taken, and then nobody could set it.
        """
        over = threading.Lock()
        over.acquire()
        self._call_when_over(over.release)
        try:
            return over.acquire(timeout=-1 if timeout is None else max(0, timeout))
        finally:
            with self._lock, contextlib.suppress(ValueError):
                self._when_over.remove(over.release)

    def _call_when_over(self, call: Callable[[], object]) -> None:
        with self._lock:
            if not self._is_over:
                self._when_over.append(call)
                return
        call()

    def _close(self) -> None:
        if self._front is not None:
            self._front.close()
        _running.discard(self)
        with self._lock:
            self._is_over = True
            calls, self._when_over = self._when_over, []
        for call in calls:
            call()

    # --- asyncio ---

    async def _awaited(self) -> Result:
        import asyncio  # as only those need who have it

        loop, over = asyncio.get_running_loop(), asyncio.Event()

        def tell() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(over.set)

        self._call_when_over(tell)
        try:
            await over.wait()
        except asyncio.CancelledError:
            while not self.done:
                self.send_signal(signal.SIGINT)
                with contextlib.suppress(asyncio.CancelledError):
                    await over.wait()
            raise
        return self._outcome()

    # --- the job's own thread ---

    def _run(self) -> None:
        if not self._begins(True):
            return
        try:
            front = self._open()
            outcome = run(
                self._job,
                self._hosts,
                lambda: self._words,
                self._reporter.said,
                front=front,
                recorders=[self._attempts],
            )
            seconds = time.monotonic() - self._began_at
            last = self._attempts.last
            assert last is not None
            self._result = made(outcome, last, self._attempts.restarts, seconds)
        except BaseException as error:
            self._error = error
        finally:
            self._close()

    def _open(self) -> Embedded:
        front = Embedded(self._streams)
        front.listener = self._reporter
        with self._lock:
            self._front = front
            for signum in self._early:
                front.put(signum)
        return front

    def _outcome(self) -> Result:
        error = self._reporter.failed or self._error
        if error is not None:
            raise error
        assert self._result is not None
        return self._result


_running: set[RunningJob] = set()


def _end_all() -> None:
    """The program ends: so do its jobs."""
    jobs = list(_running)
    for job in jobs:
        job.stop(now=True)
    deadline = time.monotonic() + _LAST_S
    for job in jobs:
        with contextlib.suppress(TimeoutError, Exception):
            job.wait(max(0.0, deadline - time.monotonic()))


def _forget_all() -> None:
    """Let go of the jobs of the process that this one is a fork of."""
    for job in list(_running):
        job.let_go()
    _running.clear()


atexit.register(_end_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)

"""What a launcher has of a process that is not its own: a thread, and what it is lent."""

from __future__ import annotations

import codecs
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TextIO

from mcjax_launch.console.sink import Target
from mcjax_launch.errors import LaunchError
from mcjax_launch.kernel.launcher.front import Front
from mcjax_launch.kernel.wire import system
from mcjax_launch.kernel.wire.exit_status import HOST_LOST
from mcjax_launch.kernel.wire.loop import Loop, SignalPipe

if TYPE_CHECKING:
    from mcjax_launch.kernel.transport.pipes import Pipes

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

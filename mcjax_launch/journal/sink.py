"""Output stream of the launcher, written without blocking and watched for its reader's end."""

import os
import select
import stat
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice

from mcjax_launch.machine.loop import GONE, HANG_UP, WRITE, Loop
from mcjax_launch.machine.system import is_in_foreground, reopen, widen

# A pipe that polls as writable takes this much without blocking (POSIX: PIPE_BUF).
_SAFE_WRITE = select.PIPE_BUF
_MOST_PIECES = 512  # of one writev
_LAST_WRITE_S = 1  # for a reader that has stopped reading when it is held


class Target:
    """Destination of one of the console's streams; this base class drops all output.

    Attributes:
        queued: number of bytes that wait for the reader.
        taken: number of bytes given to `write` so far.
        gone: True if the reader has ended.
        is_terminal: True for a terminal, on which rows can be redrawn.
        in_log: True if the output goes to a log that shows colours.
        blocks: True for a pipe, a socket or a terminal, whose reader may be slow.

    """

    def __init__(self) -> None:
        self.on_room: Callable[[], None] = lambda: None
        self.queued = self.taken = 0
        self.gone = self.is_terminal = self.in_log = self.blocks = False

    def watch(self, on_gone: Callable[[OSError | None], None]) -> None:
        """Call `on_gone` when the reader has ended, with the error if there was one."""

    def write(self, pieces: Sequence[bytes | memoryview]) -> None:
        """Write pieces of output, now or when the reader has room."""

    def hold(self, *, files: bool = False) -> None:
        """Write all queued output, then nothing until `release`; see `Sink.hold`."""

    def release(self) -> None:
        """Allow writing again after `hold`."""

    def count_rows(self) -> int:
        """Return the terminal's number of rows; 24 if unknown."""
        return 24

    def count_columns(self) -> int:
        """Return the terminal's number of columns; 80 if unknown."""
        return 80

    def is_in_foreground(self) -> bool:
        """Return whether this process may draw on the terminal."""
        return True


def make_standard_sinks(loop: Loop) -> "tuple[Sink, Sink]":
    """Return sinks for stdout and stderr; one sink twice if both are the same file."""
    out, err = Sink(1, loop), Sink(2, loop)
    return out, out if err.identity == out.identity else err


class Sink(Target):
    """File, pipe or terminal that other processes may share.

    A shared file description must not be made non-blocking, so a pipe or terminal is opened a
    second time where the system can do that; elsewhere it is written in pieces
    that a writable pipe takes at once.

    Attributes: see Target.

    """

    def __init__(self, fd: int, loop: Loop) -> None:
        super().__init__()
        self._loop = loop
        self._on_gone: Callable[[OSError | None], None] | None = None
        self._queue: deque[memoryview] = deque()
        self._fd = fd
        self._shared = False
        self._waiting = False
        self._holds = False
        kind = os.fstat(fd).st_mode
        self.is_terminal = os.isatty(self._fd)
        self._is_pipe = stat.S_ISFIFO(kind)
        self.blocks = self._is_pipe or stat.S_ISSOCK(kind) or self.is_terminal
        if self.blocks:
            try:
                flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY
                self._fd = reopen(fd, flags)
            except OSError:
                self._shared = True
        if self._is_pipe:
            widen(self._fd)
        self.identity = os.fstat(self._fd)[1:3]  # inode and device

    def watch(self, on_gone: Callable[[OSError | None], None]) -> None:
        """Call `on_gone` when the reader has ended, even while nothing is written."""
        self._on_gone = on_gone
        self._watch_hang_up()

    def _watch_hang_up(self) -> None:
        if self.blocks and not self.gone:
            # At a terminal, or a socket, that would tell of what is typed as well.
            self._loop.watch(self._fd, HANG_UP if self._is_pipe else 0, self._on_ready)

    def _on_ready(self, ready: int) -> None:
        if ready & GONE and not ready & WRITE:
            self._on_reader_loss(None)
        else:
            self.flush()

    def _on_reader_loss(self, error: OSError | None) -> None:
        self.gone = True
        self._queue.clear()
        self.queued = 0
        self._loop.forget(self._fd)
        if self._on_gone is not None:
            self._on_gone(error)
        self.on_room()

    def write(self, pieces: Sequence[bytes | memoryview]) -> None:
        """Write pieces of output, now or when the reader has room."""
        if self.gone:
            return
        idle = not self._queue
        for piece in pieces:
            if piece:
                self._queue.append(memoryview(piece))
                self.queued += len(piece)
                self.taken += len(piece)
        if idle:
            self.flush()

    def hold(self, *, files: bool = False) -> None:
        """Write all queued output, then nothing until `release`; for a file only if `files`.

        What a slow terminal does not take within a second is written after `release`.
        """
        poll = select.poll()
        poll.register(self._fd, WRITE)
        while self._queue and poll.poll(_LAST_WRITE_S * 1000):
            self.flush()
        self._holds = self.blocks or files
        if self._waiting:
            self._waiting = False
            self._watch_hang_up()

    def release(self) -> None:
        """Allow writing again after `hold`."""
        self._holds = False
        self.flush()
        if self.queued == 0:
            self.on_room()

    def flush(self) -> None:
        """Write queued output, as much as the reader has room for."""
        if self._holds:
            return
        try:
            while self._queue:
                self._drop_written(self._write_some())
        except BlockingIOError:
            if not self._waiting:
                self._waiting = True
                self._loop.watch(self._fd, WRITE, self._on_ready)
            return
        except OSError as error:  # EPIPE, EIO from a terminal that has been closed, a full disk
            self._on_reader_loss(error)
            return
        if self._waiting:
            self._waiting = False
            self._watch_hang_up()
            self.on_room()

    def _write_some(self) -> int:
        if not self._shared:
            return os.writev(self._fd, list(islice(self._queue, _MOST_PIECES)))
        poll = select.poll()
        poll.register(self._fd, WRITE)
        if not poll.poll(0):
            raise BlockingIOError
        return os.write(self._fd, self._queue[0][:_SAFE_WRITE])

    def _drop_written(self, written: int) -> None:
        self.queued -= written
        while written:
            first = self._queue.popleft()
            if written < len(first):
                self._queue.appendleft(first[written:])
                return
            written -= len(first)

    def count_rows(self) -> int:
        """Return the terminal's number of rows; 24 if unknown."""
        return self._read_size().lines or super().count_rows()

    def count_columns(self) -> int:
        """Return the terminal's number of columns; 80 if unknown."""
        return self._read_size().columns or super().count_columns()

    def _read_size(self) -> os.terminal_size:
        """Return the terminal's columns and lines; 0 for both if unknown."""
        try:
            return os.get_terminal_size(self._fd)
        except OSError:
            return os.terminal_size((0, 0))

    def is_in_foreground(self) -> bool:
        """Return whether no other process group is in the terminal's foreground."""
        return is_in_foreground(self._fd) is not False

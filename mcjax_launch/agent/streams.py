"""The ranks' output on its way to the launcher, as raw chunks, never more than it asked for."""

from __future__ import annotations

import fcntl
import os

from . import wire
from .loop import READ, WRITE, Loop

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

# A bigger pipe lets a rank write on while we are elsewhere.
_PIPE_SIZE = 1 << 18
# Bigger pieces are slower: the allocator gets them from the kernel, page by page, each time.
_PIECE = 1 << 16
_F_SETPIPE_SZ = 1031


def widen(pipe: int, size: int = _PIPE_SIZE) -> None:
    """Give a pipe a bigger buffer where the system allows it."""
    try:
        fcntl.fcntl(pipe, _F_SETPIPE_SZ, size)
    except OSError:
        pass


class Uplink:
    """The agent's way to the launcher: frames out, in order, without ever blocking.

    Only output is bounded (by the launcher's credit, see Streams); everything else is small.
    """

    def __init__(self, fd: int, loop: Loop, on_empty: Callable[[], None] | None = None) -> None:
        self._on_empty = on_empty
        self._fd = fd
        self._loop = loop
        self._queue = bytearray()
        self.broken = False
        os.set_blocking(fd, False)

    @property
    def empty(self) -> bool:
        return not self._queue

    def send(self, *parts: bytes | memoryview) -> None:
        """Send these bytes, now or as soon as there is room."""
        if self.broken:
            return
        sent = 0
        if not self._queue:
            try:
                sent = os.writev(self._fd, parts)
            except BlockingIOError:
                pass
            except OSError:
                self.drop()
                return
        for part in parts:
            if sent < len(part):
                self._queue += part[sent:]
            sent = max(0, sent - len(part))
        if self._queue:
            self._loop.watch(self._fd, WRITE, lambda ready: self.flush())

    def drop(self) -> None:
        """Nobody reads any more: forget what is queued and all that comes."""
        self.broken = True
        self._queue.clear()
        self._loop.forget(self._fd)

    def flush(self) -> None:
        """Send what is queued, as far as there is room."""
        try:
            sent = os.write(self._fd, self._queue) if self._queue else 0
            del self._queue[:sent]
        except BlockingIOError:
            return
        except OSError:
            self.drop()
        if not self._queue:
            self._loop.forget(self._fd)
            if self._on_empty is not None:
                self._on_empty()


class Streams:
    """Reads the ranks' pipes and sends what they hold, as long as the launcher gives credit."""

    def __init__(self, loop: Loop, uplink: Uplink) -> None:
        self._loop = loop
        self._uplink = uplink
        self._open: dict[int, tuple[int, int]] = {}  # rank and stream of each pipe
        self._credit = 0
        self._buffer = memoryview(bytearray(_PIECE))

    def add(self, fd: int, rank: int, stream: int) -> None:
        """Read `fd` (the reading end of a rank's pipe) from now on."""
        os.set_blocking(fd, False)
        self._open[fd] = rank, stream
        if self._credit > 0:
            self._watch(fd)

    def credit(self, count: int) -> None:
        """The launcher is ready for `count` more bytes."""
        stalled = self._credit <= 0
        self._credit += count
        if stalled and self._credit > 0:
            for fd in self._open:
                self._watch(fd)

    def drain(self) -> bool:
        """Read all that is there, for nobody can write any more; whether that was all of it.

        Not until end of file: a process that is not the job's may hold the other end.
        """
        for fd in list(self._open):
            while self._credit > 0 and self._read(fd):
                pass
        return self._credit > 0 or not self._open

    def _watch(self, fd: int) -> None:
        self._loop.watch(fd, READ, lambda ready: self._read(fd))

    def _read(self, fd: int) -> bool:
        """Send one chunk; False if there is nothing (more) to read."""
        if self._credit <= 0:
            self._stall()
            return False
        try:
            count = os.readv(fd, [self._buffer[: self._credit]])
        except BlockingIOError:
            return False
        if count == 0:
            self._loop.forget(fd)
            del self._open[fd]
            os.close(fd)
            return False
        self._credit -= count
        rank, stream = self._open[fd]
        header = wire.header(wire.DATA, count, rank, stream)
        self._uplink.send(header, self._buffer[:count])
        return True

    def _stall(self) -> None:
        """The launcher's reader is slow: read no more, so that the ranks are slowed down."""
        for fd in self._open:
            self._loop.forget(fd)

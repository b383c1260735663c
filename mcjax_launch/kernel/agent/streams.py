"""The ranks' output on its way to the launcher, as raw chunks, never more than it asked for."""

from __future__ import annotations

import os

from ..wire import frames
from ..wire.loop import READ, Loop
from ..wire.uplink import Uplink

# Bigger pieces are slower: the allocator gets them from the kernel, page by page, each time.
_PIECE = 1 << 16


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

    def drain(self, rank: int | None = None) -> bool:
        """Read what a rank, or all, have written up to now; whether the launcher's credit sufficed.

        Not until end of file: a process that is not the job's may hold the other end.
        """
        for fd, (writer, _) in list(self._open.items()):
            while rank in (None, writer) and self._credit > 0 and self._read(fd):
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
        self._uplink.send(frames.data_header(rank, stream, count), self._buffer[:count])
        return True

    def _stall(self) -> None:
        """The launcher's reader is slow: read no more, so that the ranks are slowed down."""
        for fd in self._open:
            self._loop.forget(fd)

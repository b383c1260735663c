"""Bytes on their way through a pipe, in order, without ever blocking."""

from __future__ import annotations

import fcntl
import os

from .loop import WRITE, Loop

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

# A bigger pipe lets the writer go on while the reader is elsewhere.
_PIPE_SIZE = 1 << 18
_F_SETPIPE_SZ = 1031


def widen(pipe: int, size: int = _PIPE_SIZE) -> None:
    """Give a pipe a bigger buffer where the system allows it."""
    try:
        fcntl.fcntl(pipe, _F_SETPIPE_SZ, size)
    except OSError:
        pass


class Uplink:
    """One direction of a connection, at either end: bytes out, in order, without ever blocking.

    The queue has no bound of its own: a rank's output is bounded by the launcher's credit, files
    are sent as there is room (`on_empty`), and everything else is small.

    Args:
        fd: the descriptor to write to.
        loop: calls when there is room again.
        on_empty: called when all has been written that had to wait.

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

    def send_last(self, data: bytes) -> None:
        """Send what is queued and this, however long it takes: for a process that ends."""
        rest = memoryview(bytes(self._queue) + data)
        os.set_blocking(self._fd, True)
        try:
            while rest:
                rest = rest[os.write(self._fd, rest) :]
        except OSError:  # nobody reads any more
            pass

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

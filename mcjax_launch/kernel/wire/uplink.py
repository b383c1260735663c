"""Bytes on their way through a pipe, in order, without ever blocking."""

from __future__ import annotations

import os
from collections import deque

from .loop import WRITE, Loop

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


class Uplink:
    """One direction of a connection, at either end: bytes out, in order, without ever blocking.

    The queue has no bound of its own: a rank's output is bounded by the launcher's credit, and what
    may be long is deferred (`send_later`). Of deferred frames one at a time is in the queue, so
    they delay a message by one frame at most.

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
        self._deferred: deque[Iterator[bytes]] = deque()
        self._ahead = 0  # bytes in the queue up to the end of the last deferred frame
        self.broken = False
        os.set_blocking(fd, False)

    @property
    def empty(self) -> bool:
        return not self._queue and not self._deferred

    @property
    def holds_back(self) -> bool:
        """Whether deferred frames are still to be sent."""
        return bool(self._deferred)

    def send_later(self, frames: Iterable[bytes]) -> None:
        """Defer these frames: they keep their order, and messages overtake them.

        Each is made only when it is its turn, and several such series take turns.
        """
        if not self.broken:
            self._deferred.append(iter(frames))
            self._await_room()

    def _send_deferred(self) -> None:
        """Send one of those frames: there may be news to act on before the next."""
        while self._deferred and not self._ahead:
            frames = self._deferred.popleft()
            frame = next(frames, None)
            if frame is not None:
                self._deferred.append(frames)
                self.send(frame)
                self._ahead = len(self._queue)
                return

    def _await_room(self) -> None:
        self._loop.watch(self._fd, WRITE, lambda ready: self.flush())

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
            self._await_room()

    def send_last(self, data: bytes) -> None:
        """Send what is queued and this, however long it takes: for a process that ends."""
        self._deferred.clear()
        rest = memoryview(bytes(self._queue) + data)
        os.set_blocking(self._fd, True)
        try:
            while rest:
                rest = rest[os.write(self._fd, rest) :]
        except OSError:  # nobody reads any more
            pass

    def drop(self) -> None:
        """Nobody reads any more: forget what is queued and all that comes."""
        if self.broken:  # and the descriptor may be another's by now
            return
        self.broken = True
        self._queue.clear()
        self._deferred.clear()
        self._ahead = 0
        self._loop.forget(self._fd)

    def flush(self) -> None:
        """Send what is queued, as far as there is room."""
        try:
            sent = os.write(self._fd, self._queue) if self._queue else 0
            del self._queue[:sent]
            self._ahead = max(0, self._ahead - sent)
        except BlockingIOError:
            return
        except OSError:
            self.drop()
        self._send_deferred()
        if self.empty:
            self._loop.forget(self._fd)
            if self._on_empty is not None:
                self._on_empty()

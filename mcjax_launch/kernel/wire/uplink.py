"""Bytes on their way through a pipe, in order, without ever blocking."""

from __future__ import annotations

import os
from collections import deque

from .loop import WRITE, Loop

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Deferred bytes enter the queue one batch at a time.
_BATCH = 1 << 14


class Uplink:
    """One direction of a connection, at either end: bytes out, in order, without ever blocking.

    The queue has no bound of its own: a rank's output is bounded by the launcher's credit, the
    content of files is read when there is room for it (`supply`), and everything else is small.
    Deferred bytes (`send_later`) delay a message by one batch at most; the sender bounds them.

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
        self._later: deque[bytes] = deque()
        self._ahead = 0  # bytes in the queue up to the end of the last deferred batch
        self._supplies: deque[Iterator[bytes]] = deque()
        self.broken = False
        os.set_blocking(fd, False)

    @property
    def empty(self) -> bool:
        return not self._queue and not self._later and not self._supplies

    @property
    def holds_back(self) -> bool:
        """Whether deferred bytes are still to be sent."""
        return bool(self._later)

    def send_later(self, frame: bytes) -> None:
        """Defer these bytes: they keep their order, and messages overtake them."""
        if not self.broken:
            self._later.append(frame)
            self._send_batches()

    def _send_batches(self) -> None:
        while self._later and not self._ahead:
            batch = bytearray()
            while self._later and len(batch) < _BATCH:
                batch += self._later.popleft()
            self.send(memoryview(batch))
            self._ahead = len(self._queue)

    @property
    def supplies(self) -> bool:
        """Whether there are frames that are still to be made."""
        return bool(self._supplies)

    def supply(self, frames: Iterator[bytes]) -> None:
        """Send many frames too, in order: each is made only when nothing else is to be sent."""
        if not self.broken:
            self._supplies.append(frames)
            self._await_room()

    def _send_supplied(self) -> None:
        """Send one frame of those: there may be news to act on before the next."""
        while self._supplies:
            frame = next(self._supplies[0], None)
            if frame is not None:
                self.send(frame)
                return
            self._supplies.popleft()

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
        self._later.clear()
        self._supplies.clear()
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
        self._later.clear()
        self._supplies.clear()
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
        self._send_batches()
        if not self._queue:
            self._send_supplied()
        if not self._queue and not self._supplies:
            self._loop.forget(self._fd)
            if self._on_empty is not None:
                self._on_empty()

"""Ordered, non-blocking output to a pipe."""

from __future__ import annotations

import os
from collections import deque

from .loop import WRITE, Loop

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


class Uplink:
    """Queue of outgoing bytes for one descriptor, written in order and without blocking.

    The queue has no bound: the launcher's credit bounds a rank's output, and long data is deferred
    (`send_later`). Only one deferred frame is in the queue at a time, so deferred frames delay a
    message by one frame at most.

    Args:
        fd: descriptor to write to.
        loop: event loop that reports room in the pipe.
        on_empty: called when all queued bytes have been written.

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
        """True while deferred frames are waiting (see `send_later`)."""
        return bool(self._deferred)

    def send_later(self, frames: Iterable[bytes]) -> None:
        """Send encoded frames in order, one whenever the previous has been written.

        Bytes from `send` go before them. The iterator is advanced only as frames are needed; the
        frames of several calls alternate.
        """
        if not self.broken:
            self._deferred.append(iter(frames))
            self._await_room()

    def _send_deferred(self) -> None:
        """Queue the next deferred frame, unless the last one is still being written."""
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
        """Write bytes now, or queue them until there is room; drop them if the reader is gone."""
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
        """Write all queued bytes and `data`, blocking, before this process ends."""
        self._deferred.clear()
        rest = memoryview(bytes(self._queue) + data)
        os.set_blocking(self._fd, True)
        try:
            while rest:
                rest = rest[os.write(self._fd, rest) :]
        except OSError:  # the reader is gone
            pass

    def drop(self) -> None:
        """Discard all queued and later bytes, because the reader is gone."""
        if self.broken:  # the descriptor may be in use for something else by now
            return
        self.broken = True
        self._queue.clear()
        self._deferred.clear()
        self._ahead = 0
        self._loop.forget(self._fd)

    def flush(self) -> None:
        """Write as much of the queue as the pipe has room for; call `on_empty` at its end."""
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

"""The agent's connection to the launcher: messages in and out, and the ranks' output."""

from __future__ import annotations

import os
import time

from ..wire import frames, messages
from ..wire.codec import Malformed
from ..wire.loop import READ, Loop
from ..wire.system import LINUX
from ..wire.uplink import Uplink

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..wire.codec import Message


class LauncherLink:
    """Takes messages to the launcher and hands on those that come from it.

    Args:
        control: the descriptor to read from.
        uplink: the way to the launcher.
        remote: it leads over a network, where nobody may be silent for long.
        on_message: called for each message, and each piece of a file or of the input.
        on_lost: called once, when the launcher is gone.

    Attributes:
        asks_again: after Bye: the launcher has another run.

    """

    def __init__(
        self,
        control: int,
        uplink: Uplink,
        loop: Loop,
        *,
        remote: bool,
        on_message: Callable[[frames.Frame], None],
        on_lost: Callable[[], None],
    ) -> None:
        self._control = control
        self.uplink = uplink
        self._loop = loop
        self.is_remote = remote
        self.said_bye = self.asks_again = False
        self._on_message = on_message
        self._on_lost = on_lost
        self._decoder = frames.Decoder(messages.ToAgent)
        self._heard_at = time.monotonic()
        self._ping_at = 0.0

    def open(self) -> None:
        """Listen from now on, and greet."""
        os.set_blocking(self._control, False)
        self._loop.watch(self._control, READ, lambda ready: self._read())
        self.uplink.send(frames.MAGIC)
        self.send(messages.Greeting(messages.VERSION, portable=not LINUX))

    def send(self, message: Message) -> None:
        """Send a message, now or as soon as there is room; nowhere if the launcher is gone.

        After Bye, which may wait for a launcher that waits for a slow reader, only heartbeats go
        on: nothing that it still says is acted on, and nothing that happens here is told.
        """
        if not self.said_bye or isinstance(message, messages.Ping):
            self.said_bye |= isinstance(message, messages.Bye)
            self.uplink.send(frames.encoded(message))

    def _read(self) -> None:
        try:
            data = os.read(self._control, 65536)
        except OSError:
            return
        for frame in self._decoded(data):
            if not self.said_bye:
                self._on_message(frame)
            elif isinstance(frame, messages.ServeAgain):
                self.asks_again = True
        # Now: a message may take a while to act on, in which nothing is read.
        self._heard_at = time.monotonic()
        if not data:
            self._lose()

    def _decoded(self, data: bytes) -> Iterator[frames.Frame]:
        """The frames that are complete; the launcher is lost at the first that is malformed."""
        try:
            yield from self._decoder.feed(data)
        except Malformed as error:
            why = f"a malformed message from the launcher ({error}): {frames.UNCHANGED}"
            self.send(messages.Ending(why))
            self._lose()

    def _lose(self) -> None:
        self.is_remote = False
        self._loop.forget(self._control)
        self.uplink.drop()
        self._on_lost()

    # A cut cable sends no end of file: silence for long enough means the same.

    @property
    def deadline(self) -> float | None:
        """When to send a heartbeat, or to take silence for the end."""
        return min(self._ping_at, self._lost_at) if self.is_remote else None

    @property
    def _lost_at(self) -> float:
        return self._heard_at + frames.SILENCE_S

    def expire(self, now: float) -> None:
        """Do so, if it is time."""
        if not self.is_remote:
            return
        if now >= self._lost_at:
            self._lose()
        elif now >= self._ping_at:
            self._ping_at = now + frames.PING_S
            self.send(messages.Ping())


# --- the ranks' output: raw chunks, never more than the launcher asked for ---

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

    def close(self) -> None:
        """Let go of the pipes that others still hold."""
        for fd in self._open:
            os.close(fd)
        self._open.clear()

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

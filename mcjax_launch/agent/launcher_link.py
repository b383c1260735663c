"""Agent's connection to the launcher: messages in and out, and the ranks' output."""

from __future__ import annotations

import os
import time

from ..machine.loop import READ, Loop
from ..machine.system import LINUX
from ..machine.uplink import Uplink
from ..wire import frames, messages
from ..wire.codec import Malformed
from .system.unix import NO_INPUT

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..wire.codec import Message


class LauncherLink:
    """Connection to the launcher: sends messages, and passes received messages on.

    Args:
        control: descriptor to read from.
        uplink: queue of the bytes for the launcher.
        loop: event loop that watches `control`.
        remote: True for a connection over a network, where both ends must send heartbeats.
        on_message: called with each message, and with each piece of a file or of the input.
        on_lost: called once, when the launcher is gone.

    Attributes:
        ignores: True to drop the launcher's messages.

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
        self.said_bye = self.ignores = False
        self._on_message = on_message
        self._on_lost = on_lost
        self._decoder = frames.Decoder(messages.ToAgent)
        self._heard_at = time.monotonic()
        self._ping_at = 0.0

    def open(self) -> None:
        """Start reading from the launcher, and send the Greeting."""
        os.set_blocking(self._control, False)
        self._loop.watch(self._control, READ, lambda ready: self._read())
        self.uplink.send(frames.MAGIC)
        self.send(messages.Greeting(messages.VERSION, portable=not LINUX))

    def send(self, message: Message) -> None:
        """Send a message, now or as soon as there is room; drop it if the launcher is gone.

        After Bye, which may be queued behind a slow reader's output, only heartbeats are sent.
        """
        if not self.said_bye or isinstance(message, messages.Ping):
            self.said_bye |= isinstance(message, messages.Bye)
            self.uplink.send(frames.encode_message(message))

    def _read(self) -> None:
        try:
            data = os.read(self._control, 65536)
        except OSError:
            return
        for frame in self._decode_frames(data):
            if not self.said_bye and not self.ignores:
                self._on_message(frame)
        # Not earlier: while a message is handled, which may take long, nothing is read.
        self._heard_at = time.monotonic()
        if not data:
            self._on_launcher_loss()

    def _decode_frames(self, data: bytes) -> Iterator[frames.Frame]:
        """Yield complete frames; report a malformed frame and treat the launcher as gone."""
        try:
            yield from self._decoder.feed(data)
        except Malformed as error:
            why = f"a malformed message from the launcher ({error}): {frames.UNCHANGED}"
            self.send(messages.Ending(why))
            self._on_launcher_loss()

    def _on_launcher_loss(self) -> None:
        self.is_remote = False
        self._loop.forget(self._control)
        self.uplink.drop()
        self._on_lost()

    # A cut cable sends no end of file: silence for long enough means the same.

    @property
    def deadline(self) -> float | None:
        """Time of the next heartbeat or of giving up a silent launcher; None if it is local."""
        return min(self._ping_at, self._lost_at) if self.is_remote else None

    @property
    def _lost_at(self) -> float:
        return self._heard_at + frames.SILENCE_S

    def expire(self, now: float) -> None:
        """Send a heartbeat if it is due; treat the launcher as gone if it was silent too long."""
        if not self.is_remote:
            return
        if now >= self._lost_at:
            self._on_launcher_loss()
        elif now >= self._ping_at:
            self._ping_at = now + frames.PING_S
            self.send(messages.Ping())


# --- the ranks' output: raw chunks, never more than the launcher asked for ---

# Bigger pieces are slower, because the allocator requests their pages from the kernel each time.
_PIECE = 1 << 16


class Streams:
    """Reader of the ranks' output pipes; sends the output on, up to the launcher's credit.

    Attributes:
        input: descriptor that rank 0 gets as its standard input; -1 for /dev/null.

    """

    def __init__(self, loop: Loop, uplink: Uplink) -> None:
        self.input = -1
        self._loop = loop
        self._uplink = uplink
        self._open: dict[int, tuple[int, int]] = {}  # rank and stream of each pipe
        self._pipes: dict[int, list[int]] = {}  # the open pipes of each rank
        self._credit = 0
        self._buffer = memoryview(bytearray(_PIECE))

    def add(self, fd: int, rank: int, stream: int) -> None:
        """Start reading `fd`, the reading end of the pipe for a rank's STDOUT or STDERR."""
        os.set_blocking(fd, False)
        self._open[fd] = rank, stream
        self._pipes.setdefault(rank, []).append(fd)
        if self._credit > 0:
            self._watch(fd)

    def pop_input(self, rank: int) -> int:
        """Return a descriptor for a rank's standard input, which the caller closes."""
        if rank != 0 or self.input < 0:
            return os.dup(NO_INPUT)
        given, self.input = self.input, -1
        return given

    def close(self) -> None:
        """Close the pipes that are still open, because other processes hold the writing ends."""
        for fd in self._open:
            os.close(fd)
        self._open.clear()
        self._pipes.clear()

    def add_credit(self, count: int) -> None:
        """Allow `count` more bytes to be sent."""
        stalled = self._credit <= 0
        self._credit += count
        if stalled and self._credit > 0:
            for fd in self._open:
                self._watch(fd)

    def drain(self, rank: int | None = None) -> bool:
        """Send the output that a rank has written so far; return whether the credit sufficed.

        Do not wait for the end of file, because a process outside the job may hold the pipe open.

        Args:
            rank: the rank; None for all ranks.

        """
        for fd in list(self._open if rank is None else self._pipes.get(rank, ())):
            while self._credit > 0 and self._read(fd):
                pass
        return self._credit > 0 or not self._open

    def _watch(self, fd: int) -> None:
        self._loop.watch(fd, READ, lambda ready: self._read(fd))

    def _read(self, fd: int) -> bool:
        """Read and send one chunk; return False if nothing was read or no credit is left."""
        if self._credit <= 0:
            self._stall()
            return False
        try:
            count = os.readv(fd, [self._buffer[: self._credit]])
        except BlockingIOError:
            return False
        if count == 0:
            self._loop.forget(fd)
            rank, _ = self._open.pop(fd)
            self._pipes[rank].remove(fd)
            os.close(fd)
            return False
        self._credit -= count
        rank, stream = self._open[fd]
        self._uplink.send(frames.make_data_header(rank, stream, count), self._buffer[:count])
        return True

    def _stall(self) -> None:
        """Stop reading all pipes until there is credit; ranks block when their pipes are full."""
        for fd in self._open:
            self._loop.forget(fd)

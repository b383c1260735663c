"""Source of a client's calls, whose files come as descriptors."""

from __future__ import annotations

import _socket  # without socket's own imports
from collections.abc import Iterator

from mcjax_launch.wire.codec import Message
from mcjax_launch.wire.line import receive


class CallSource:
    """Socket for a client's messages, some of them with descriptors.

    Args:
        fd: descriptor of the socket.

    Attributes:
        has_ended: True if the client has closed its end.

    """

    def __init__(self, fd: int) -> None:
        self.has_ended = False
        self._socket = _socket.socket(fileno=fd)
        self._held = b""
        self._descriptors: list[int] = []

    def fileno(self) -> int:
        """Return the descriptor to watch."""
        return self._socket.fileno()

    def read(self) -> Iterator[Message]:
        """Read once, and yield the messages that are complete."""
        data, descriptors = receive(self._socket, 65536)
        self.has_ended = not data
        self._descriptors += descriptors
        *lines, self._held = (self._held + data).split(b"\n")
        yield from (Message.of(line.decode()) for line in lines)

    def pop_descriptor(self) -> int:
        """Remove and return the descriptor that came with a message."""
        return self._descriptors.pop(0)

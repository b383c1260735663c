"""Connection of a rank to its agent for a feature: messages as lines of JSON on a unix socket."""

from __future__ import annotations

import _socket  # without socket's own imports
import os
import sys

from .codec import Malformed, to_json
from .hook_messages import Hello

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TypeVar

    from .codec import Message

    M = TypeVar("M", bound=Message)

_CONNECT_S = 10
_MOST_DESCRIPTORS = 4
_DESCRIPTOR_BYTES = 4


class AgentLine:
    """Connection to the agent, for one thread at a time.

    Args:
        path: path of the agent's unix socket.
        process_id: value of JAX_PROCESS_ID that this process was started with.
        connect_s: seconds within which the agent must accept the connection.

    Attributes:
        descriptors: file descriptors that arrived with messages and are not yet used.

    Raises:
        OSError: no agent accepts the connection.

    """

    def __init__(self, path: str, process_id: str, connect_s: float = _CONNECT_S) -> None:
        self.descriptors: list[int] = []
        self._held = b""
        self._socket = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        self._socket.settimeout(connect_s)
        try:
            self._socket.connect(path)
        except OSError:
            self._socket.close()
            raise
        self._socket.settimeout(None)
        self.send(Hello(os.getpid(), process_id))

    def send(self, message: Message) -> None:
        """Send a message; drop it if the agent is gone."""
        try:
            self._socket.sendall(to_json(message).encode("utf-8", "replace") + b"\n")
        except OSError:
            pass

    def receive(self, family: type[M], timeout_s: float | None = None) -> M | None:
        """Return the next message of a class; None after `timeout_s` or if the agent is gone."""
        self._socket.settimeout(timeout_s)
        while True:
            while b"\n" not in self._held:
                try:
                    data, descriptors = receive(self._socket, 4096)
                except OSError:  # it is late, or the agent is gone
                    return None
                if not data:
                    return None
                self._held += data
                self.descriptors += descriptors
            first, _, self._held = self._held.partition(b"\n")
            try:
                return family.of(first.decode("utf-8", "replace"))
            except Malformed:
                continue

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


def send(connection: _socket.socket, message: Message, descriptors: Sequence[int] = ()) -> None:
    """Send a message with file descriptors; drop it if the other end does not read or is gone."""
    data = b"".join(fd.to_bytes(_DESCRIPTOR_BYTES, sys.byteorder) for fd in descriptors)
    rights = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, data)] if data else []
    try:
        connection.sendmsg([to_json(message).encode() + b"\n"], rights)
    except OSError:
        pass


def receive(connection: _socket.socket, most: int, flags: int = 0) -> tuple[bytes, list[int]]:
    """Read from a unix socket; return bytes (b"" at its end) and descriptors sent with them.

    Raises:
        OSError: the connection is broken.

    """
    room = _socket.CMSG_SPACE(_MOST_DESCRIPTORS * _DESCRIPTOR_BYTES)
    data, ancillary, *_ = connection.recvmsg(most, room, flags)
    received = ancillary[0][2] if ancillary else b""
    return data, list(memoryview(received).cast("i"))

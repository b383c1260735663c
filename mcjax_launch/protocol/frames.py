"""Frames between launcher and agent; no input or output of its own.

A frame is a kind, a stream number, a rank, a length and that many bytes: raw bytes, or a message
as JSON (see `messages`).
"""

from __future__ import annotations

import struct

from . import messages
from .codec import from_json, to_json

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TypeAlias

    from .codec import Message

    Frame: TypeAlias = "Message | Data | Content | Relayed"

HEADER = struct.Struct("!BBII")  # kind, stream, rank, length

#: Comes before the agent's first frame: what is before it is a login's own noise.
MAGIC = b"\x00mcjax-launch agent\x00\n"

#: Begins the line on stderr of an agent whose host cannot take part: it ends without a greeting.
UNFIT = "mcjax-launch agent: "

STDIN, STDOUT, STDERR = 0, 1, 2
#: What a debugger in a rank writes to the user's terminal; from the launcher, what the user types.
TERMINAL = 3

#: So many bytes of the launcher's standard input may be on their way to a host.
INPUT_WINDOW = 1 << 18

#: So many bytes of a relayed stream may be on their way in each direction,
RELAY_WINDOW = 1 << 16
#: in frames of so many at the most.
RELAY_PIECE = 1 << 14

#: Over a network each side sends something this often (seconds),
PING_S = 3.0
#: and takes the other for lost after this much silence.
SILENCE_S = 12.0


class Data:
    """Raw bytes of a rank's stream: a frame, or as much of one as has arrived.

    Of STDIN they are for all ranks of the host that take the launcher's, and `rank` means nothing.
    """

    __slots__ = ("payload", "rank", "stream")

    def __init__(self, rank: int, stream: int, payload: bytes) -> None:
        self.rank = rank
        self.stream = stream
        self.payload = payload

    def __repr__(self) -> str:
        return f"Data(rank={self.rank}, stream={self.stream}, {len(self.payload)} bytes)"


class Content:
    """Raw bytes of the file that is being staged."""

    __slots__ = ("payload",)

    def __init__(self, payload: bytes) -> None:
        self.payload = payload

    def __repr__(self) -> str:
        return f"Content({len(self.payload)} bytes)"


class Relayed:
    """Raw bytes between a rank and JAX's coordination service on another host."""

    __slots__ = ("payload", "stream")

    def __init__(self, stream: int, payload: bytes) -> None:
        self.stream = stream
        self.payload = payload

    def __repr__(self) -> str:
        return f"Relayed(stream={self.stream}, {len(self.payload)} bytes)"


def data_header(rank: int, stream: int, length: int) -> bytes:
    """The bytes that go before `length` bytes of a rank's stream."""
    return HEADER.pack(messages.DATA, stream, rank, length)


def content(piece: bytes) -> bytes:
    """A whole frame with a piece of a file."""
    return HEADER.pack(messages.CONTENT, 0, 0, len(piece)) + piece


def relayed(stream: int, piece: bytes) -> bytes:
    """A whole frame with bytes between a rank and the coordination service."""
    return HEADER.pack(messages.RELAYED, 0, stream, len(piece)) + piece


def encoded(message: Message) -> bytes:
    """A whole frame that carries a message."""
    payload = to_json(message).encode()
    return HEADER.pack(messages.kind_of(message), 0, 0, len(payload)) + payload


class Decoder:
    """Bytes in, messages and raw bytes out, however the bytes were cut.

    The bytes of a rank's stream are handed on in pieces as they arrive, so that a big frame is
    never held whole; everything else comes whole.
    """

    def __init__(self) -> None:
        self._held = b""
        self._data = (0, 0)  # rank and stream of the Data that is under way
        self._data_left = 0

    def feed(self, data: bytes | memoryview) -> Iterator[Frame]:
        """What `data` completes."""
        view = memoryview(self._held + bytes(data) if self._held else data)
        self._held = b""
        at, end = 0, len(view)
        while at < end:
            if self._data_left:
                piece = bytes(view[at : at + self._data_left])
                at += len(piece)
                self._data_left -= len(piece)
                yield Data(*self._data, piece)
                continue
            if end - at < HEADER.size:
                break
            kind, stream, rank, length = HEADER.unpack_from(view, at)
            body = at + HEADER.size
            if kind == messages.DATA:
                self._data = rank, stream
                self._data_left = length
                at = body
                continue
            if end - body < length:
                break
            at = body + length
            payload = bytes(view[body:at])
            if kind == messages.CONTENT:
                yield Content(payload)
            elif kind == messages.RELAYED:
                yield Relayed(stream=rank, payload=payload)
            else:
                yield messages.decoded(kind, from_json(payload.decode()))
        self._held = bytes(view[at:])

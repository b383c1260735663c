"""Frames between launcher and agent; no input or output of its own.

A frame is a kind, a stream number, a rank, a length and that many bytes: raw bytes, or a message
as JSON (see `messages`).
"""

from __future__ import annotations

import struct

from .codec import Malformed, Message, to_json
from .timers import scaled

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TypeAlias

    Frame: TypeAlias = "Message | Data | Raw"

HEADER = struct.Struct("!BBII")  # kind, stream, rank, length

#: The kinds: raw bytes of a rank's stream,
DATA = 0
#: of a feature, whatever they are to it, or of a file,
RAW = 1
#: or a message.
MESSAGE = 2

#: Comes before the agent's first frame: what is before it is a login's own noise.
MAGIC = b"\x00mcjax-launch agent\x00\n"

#: What to say of a connection that is no such thing.
UNCHANGED = (
    "the connection has to carry every byte unchanged: no terminal (-t), and nothing that the "
    "client or a start-up file prints"
)

#: Begins the line on stderr of an agent whose host cannot take part: it ends without a greeting.
UNFIT = "mcjax-launch agent: "

STDOUT, STDERR = 1, 2

# Raw bytes come in smaller pieces: 64 KiB of a rank's output, of a file or of a feature at most.
_LONGEST_RAW = (1 << 16) + 256
# What the launcher sends has no bound: it knows every rank's arguments.
_LONGEST = 1 << 32
# Of text in a frame's place, so much is shown; fewer bytes may be anything.
_SHOWN, _LEAST_TEXT = 80, 4
#: The longest message of an agent is shorter: what a hook says of a failure is (see hook_server),
#: and a dump of stacks, all of it escaped.
LONGEST_FROM_AGENT = 1 << 26

#: Over a network each side sends something this often (seconds),
PING_S = scaled(3.0)
#: and takes the other for lost after this much silence.
SILENCE_S = scaled(12.0)


class Data:
    """Raw bytes that a rank has written."""

    __slots__ = ("payload", "rank", "stream")

    def __init__(self, rank: int, stream: int, payload: bytes) -> None:
        self.rank = rank
        self.stream = stream
        self.payload = payload

    def __repr__(self) -> str:
        return f"Data(rank={self.rank}, stream={self.stream}, {len(self.payload)} bytes)"


class Raw:
    """Raw bytes between the parts of a feature; what `number` counts is the feature's own.

    Those of no feature are, to an agent, of the file that is being staged.
    """

    __slots__ = ("feature", "number", "payload")

    def __init__(self, feature: str, number: int, payload: bytes) -> None:
        self.feature = feature
        self.number = number
        self.payload = payload

    def __repr__(self) -> str:
        return f"Raw({self.feature}, {self.number}, {len(self.payload)} bytes)"


def data_header(rank: int, stream: int, length: int) -> bytes:
    """The bytes that go before `length` bytes of a rank's stream."""
    return HEADER.pack(DATA, stream, rank, length)


def raw(feature: str, number: int, piece: bytes | memoryview) -> bytes:
    """A whole frame with bytes of a feature; its name goes before them."""
    name = feature.encode()
    return HEADER.pack(RAW, len(name), number, len(name) + len(piece)) + name + piece


def encoded(message: Message) -> bytes:
    """A whole frame that carries a message."""
    payload = to_json(message).encode()
    return HEADER.pack(MESSAGE, 0, 0, len(payload)) + payload


def _raw(name_length: int, number: int, payload: bytes) -> Raw:
    name, piece = payload[:name_length], payload[name_length:]
    if name and not name.replace(b"_", b"").isalpha():
        raise Malformed("raw bytes of no feature")
    return Raw(name.decode("ascii", "replace"), number, piece)


def _no_frame(data: bytes) -> str:
    """Return what came in a frame's place: text, as a rule of a program that prints there."""
    text = data.decode("ascii", "replace").lstrip()
    line = "".join(char if " " <= char <= "~" else "\n" for char in text).split("\n")[0].strip()
    if len(line) < _LEAST_TEXT:
        return f"unknown kind of frame {data[0]}"
    return f'"{line}", which is no message'


class Decoder:
    """Bytes in, messages and raw bytes out, however the bytes were cut.

    Args:
        family: what may come; any other message is malformed.
        longest: a message of more bytes is malformed.

    """

    def __init__(self, family: type[Message] = Message, longest: int = _LONGEST) -> None:
        self._family = family
        self._longest = longest
        self._held = bytearray()  # of a frame that is not complete
        self._wanted = 0  # so many bytes of it are needed to go on

    def feed(self, data: bytes | bytearray | memoryview) -> Iterator[Frame]:
        """The frames that `data` completes.

        Raises:
            Malformed: it is no frame; nothing that comes after it can be understood.

        """
        if self._held:
            self._held += data
            if len(self._held) < self._wanted:
                return
            data, self._held = self._held, bytearray()
        view = memoryview(data)
        at, end, self._wanted = 0, len(view), HEADER.size
        while end - at >= HEADER.size:
            kind, stream, rank, length = HEADER.unpack_from(view, at)
            if kind > MESSAGE:
                raise Malformed(_no_frame(bytes(view[at : at + _SHOWN])))
            self._check(kind, length)
            body = at + HEADER.size
            if end - body < length:
                self._wanted = HEADER.size + length
                break
            at = body + length
            yield self._frame(kind, stream, rank, bytes(view[body:at]))
        self._held = bytearray(view[at:])

    def _check(self, kind: int, length: int) -> None:
        """Refuse at its header what is no frame: its bytes may never come."""
        if length > (self._longest if kind == MESSAGE else _LONGEST_RAW):
            raise Malformed(f"a frame of {length} bytes")

    def _frame(self, kind: int, stream: int, rank: int, payload: bytes) -> Frame:
        if kind == DATA:
            return Data(rank, stream, payload)
        if kind == RAW:
            return _raw(stream, rank, payload)
        try:
            return self._family.of(payload.decode())
        except UnicodeDecodeError as error:
            raise Malformed(str(error)) from None

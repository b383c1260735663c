"""Frames between launcher and agent: encoding and decoding, without any input or output.

A frame is a kind, a stream number, a rank, a length and that many bytes: either raw bytes or a
message as JSON (see `messages`).
"""

from __future__ import annotations

import struct

from .codec import Malformed, Message, to_json
from .timers import scale_time

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TypeAlias

    Frame: TypeAlias = "Message | Data | Raw"

HEADER = struct.Struct("!BBII")  # kind, stream, rank, length

#: Kind of frame: raw bytes of a rank's stream.
DATA = 0
#: Kind of frame: raw bytes of a feature, or of a file.
RAW = 1
#: Kind of frame: a message.
MESSAGE = 2

#: Precedes the agent's first frame: earlier bytes are a login shell's noise.
MAGIC = b"\x00mcjax-launch agent\x00\n"

#: Advice for a connection that does not carry frames.
UNCHANGED = (
    "the connection must carry every byte unchanged: use no terminal (-t), and let neither the "
    "client nor a start-up file print anything"
)

#: Prefix of the line on stderr with which an agent ends if its host cannot take part.
UNFIT = "mcjax-launch agent: "

STDOUT, STDERR = 1, 2

# Bytes: senders split raw data into pieces of at most 64 KiB, plus a feature's name.
_LONGEST_RAW = (1 << 16) + 256
# Bytes: the launcher's messages grow with the arguments of all ranks.
_LONGEST = 1 << 32
# Bytes shown of text that arrives in place of a frame; fewer than the second may be anything.
_SHOWN, _LEAST_TEXT = 80, 4
#: Bytes; longer than any message of an agent: a hook's report of a failure (see hook_server) and a
#: dump of stacks are shorter, even with every byte escaped.
LONGEST_FROM_AGENT = 1 << 26

#: Over a network, the launcher and an agent send something at least this often (seconds).
PING_S = scale_time(3.0)
#: The peer counts as lost after this many seconds of silence.
SILENCE_S = scale_time(12.0)


class Data:
    """Frame of raw bytes that a rank wrote to `stream` (STDOUT or STDERR)."""

    __slots__ = ("payload", "rank", "stream")

    def __init__(self, rank: int, stream: int, payload: bytes) -> None:
        self.rank = rank
        self.stream = stream
        self.payload = payload

    def __repr__(self) -> str:
        return f"Data(rank={self.rank}, stream={self.stream}, {len(self.payload)} bytes)"


class Raw:
    """Frame of raw bytes for a feature, which defines the meaning of `number`.

    With an empty `feature`, the agent appends the bytes to the file that is being staged.
    """

    __slots__ = ("feature", "number", "payload")

    def __init__(self, feature: str, number: int, payload: bytes) -> None:
        self.feature = feature
        self.number = number
        self.payload = payload

    def __repr__(self) -> str:
        return f"Raw({self.feature}, {self.number}, {len(self.payload)} bytes)"


def make_data_header(rank: int, stream: int, length: int) -> bytes:
    """Return the header of a Data frame; `length` bytes of the rank's output must follow."""
    return HEADER.pack(DATA, stream, rank, length)


def encode_raw(feature: str, number: int, piece: bytes | memoryview) -> bytes:
    """Encode a Raw frame: header, name of the feature, and the bytes of `piece`."""
    name = feature.encode()
    return HEADER.pack(RAW, len(name), number, len(name) + len(piece)) + name + piece


def encode_message(message: Message) -> bytes:
    """Encode a message as a frame."""
    payload = to_json(message).encode()
    return HEADER.pack(MESSAGE, 0, 0, len(payload)) + payload


def _decode_raw(name_length: int, number: int, payload: bytes) -> Raw:
    name, piece = payload[:name_length], payload[name_length:]
    if name and not name.replace(b"_", b"").isalpha():
        raise Malformed("raw bytes of no feature")
    return Raw(name.decode("ascii", "replace"), number, piece)


def _explain_non_frame(data: bytes) -> str:
    """Return an error message for bytes that are no frame: usually text that a program printed."""
    text = data.decode("ascii", "replace").lstrip()
    line = "".join(char if " " <= char <= "~" else "\n" for char in text).split("\n")[0].strip()
    if len(line) < _LEAST_TEXT:
        return f"unknown kind of frame {data[0]}"
    return f'"{line}" is not a message'


class Decoder:
    """Incremental decoder of frames: bytes in, in pieces of any size, messages and raw bytes out.

    Args:
        family: base class of the expected messages; other messages are malformed.
        longest: limit on the length of a message, in bytes.

    """

    def __init__(self, family: type[Message] = Message, longest: int = _LONGEST) -> None:
        self._family = family
        self._longest = longest
        self._held = bytearray()  # the bytes of an incomplete frame
        self._wanted = 0  # length that _held needs before decoding continues

    def feed(self, data: bytes | bytearray | memoryview) -> Iterator[Frame]:
        """Yield the frames that `data` completes.

        Raises:
            Malformed: the bytes are not a frame; later bytes cannot be decoded either.

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
                raise Malformed(_explain_non_frame(bytes(view[at : at + _SHOWN])))
            if length > (self._longest if kind == MESSAGE else _LONGEST_RAW):
                raise Malformed(f"a frame of {length} bytes")
            body = at + HEADER.size
            if end - body < length:
                self._wanted = HEADER.size + length
                break
            at = body + length
            yield self._decode_frame(kind, stream, rank, bytes(view[body:at]))
        self._held = bytearray(view[at:])

    def _decode_frame(self, kind: int, stream: int, rank: int, payload: bytes) -> Frame:
        if kind == DATA:
            return Data(rank, stream, payload)
        if kind == RAW:
            return _decode_raw(stream, rank, payload)
        try:
            return self._family.of(payload.decode())
        except UnicodeDecodeError as error:
            raise Malformed(str(error)) from None

"""Frames between launcher and agent; no input or output of its own.

A frame is a kind, a stream number, a rank, a length and that many bytes. Both ends are always
the same version (the launcher brings the agent along), so frames carry no version.
"""

from __future__ import annotations

import json
import struct

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

HEADER = struct.Struct("!BBHI")  # kind, stream, rank, length

#: Comes before the agent's first frame: what is before it is a login's own noise.
MAGIC = b"\x00mcjax-launch agent\x00\n"

# Launcher to agent.
PREPARE = 1  # {..}: what to find out and reserve before anything starts
START = 2  # {ranks: [...]}: start them
CREDIT = 3  # {bytes}: so much of the output has been consumed
SIGNAL = 4  # {signal}: pass it to every rank
STOP = 5  # {signal, grace}: end the ranks
DUMP = 6  # {all}: stacks of all ranks, please, maybe of all their threads
CHECK = 7  # {addresses, port}: can you reach these?
ENTRY = 8  # {path, kind, ...}: a file or folder for the staging folder; before PREPARE
CONTENT = 9  # raw bytes of the last ENTRY
PING = 10  # {}: in both directions, from a distance: still there
LOOK = 11  # {ranks}: which programs these run still, please; HOOKED follows for each

# Agent to launcher.
HELLO = 32  # {pid, host, python}: the agent runs
REFUSED = 33  # {message, status}: PREPARE or START cannot be done; nothing goes on
READY = 34  # {..}: the answer to PREPARE
CHECKED = 43  # {sources, errors}: the answer to CHECK, by address
STARTED = 35  # {pid}, for each rank
DATA = 36  # raw bytes of a rank's stream
EXITED = 37  # {status, sent, killer, ...}: a rank's process is gone
HOOKED = 38  # {..}: a message of the hook inside a rank
USAGE = 45  # {rank: [cpu_s, rss_kib, main_s]}: what the ranks use, see usage.py
STACKS = 39  # {pid, text, state}: answer to DUMP, for each process that has something to say
DUMPED = 40  # {}: that was the last of the stacks
ENDING = 41  # {why}: somebody other than the launcher wants the agent gone
EMPTY = 44  # {}: no process of the job is left here; the rest of its output follows
BYE = 42  # {unkillable, stragglers}: the last frame

STDOUT, STDERR = 1, 2

#: Over a network each side says something this often,
PING_S = 3.0
#: and takes the other for lost after so much silence.
SILENCE_S = 12.0


class Frame:
    """One frame, or (for DATA only) as much of one as has arrived."""

    __slots__ = ("kind", "payload", "rank", "stream")

    def __init__(self, kind: int, stream: int, rank: int, payload: bytes) -> None:
        self.kind = kind
        self.stream = stream
        self.rank = rank
        self.payload = payload

    def body(self) -> dict[str, Any]:
        """The payload of any frame but DATA."""
        value = json.loads(self.payload)
        assert isinstance(value, dict)
        return value


def header(kind: int, length: int, rank: int = 0, stream: int = 0) -> bytes:
    """The bytes that go before a payload of `length` bytes."""
    return HEADER.pack(kind, stream, rank, length)


def message(kind: int, body: dict[str, Any], rank: int = 0) -> bytes:
    """A whole frame that carries a JSON object."""
    payload = json.dumps(body).encode()
    return header(kind, len(payload), rank) + payload


class Decoder:
    """Bytes in, frames out, however the bytes were cut.

    The payload of a DATA frame is handed on in pieces as it arrives, so that a big one is never
    held whole; every other frame comes whole.
    """

    def __init__(self) -> None:
        self._held = b""
        self._data = (0, 0)  # stream and rank of the DATA frame that is under way
        self._data_left = 0

    def feed(self, data: bytes | memoryview) -> Iterator[Frame]:
        """The frames that `data` completes."""
        view = memoryview(self._held + bytes(data) if self._held else data)
        self._held = b""
        at, end = 0, len(view)
        while at < end:
            if self._data_left:
                piece = bytes(view[at : at + self._data_left])
                at += len(piece)
                self._data_left -= len(piece)
                yield Frame(DATA, *self._data, piece)
                continue
            if end - at < HEADER.size:
                break
            kind, stream, rank, length = HEADER.unpack_from(view, at)
            body = at + HEADER.size
            if kind == DATA:
                self._data = stream, rank
                self._data_left = length
                at = body
                continue
            if end - body < length:
                break
            at = body + length
            yield Frame(kind, stream, rank, bytes(view[body:at]))
        self._held = bytes(view[at:])

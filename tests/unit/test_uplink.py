"""The queue of a connection: in order, and what may wait lets messages overtake it."""

import contextlib
import os
from collections.abc import Iterator

import pytest

from mcjax_launch.machine.loop import Loop
from mcjax_launch.machine.uplink import Uplink


class Way:
    """An uplink, and the pipe into which it writes."""

    def __init__(self) -> None:
        self.out, self.fd = os.pipe()
        self.loop = Loop()
        self.uplink = Uplink(self.fd, self.loop)

    def rest(self) -> bytes:
        """All that comes out at the other end."""
        data = b""
        while not self.uplink.empty:
            data += os.read(self.out, 1 << 16)
            self.loop.dispatch_ready(0)
        os.set_blocking(self.out, False)
        with contextlib.suppress(BlockingIOError):
            while piece := os.read(self.out, 1 << 16):
                data += piece
        return data

    def reader_goes(self) -> None:
        os.close(self.out)
        self.out = -1


@pytest.fixture
def way() -> Iterator[Way]:
    made = Way()
    yield made
    for fd in {made.out, made.fd} - {-1}:
        os.close(fd)


def test_deferred_frames_are_sent_beside_an_endless_stream(way: Way) -> None:
    uplink = way.uplink
    uplink.send(bytes(1 << 18))
    for number in range(3):
        uplink.send_later([bytes([65 + number]) * (1 << 14)])
    data = b""
    for _ in range(100):
        data += os.read(way.out, 1 << 16)
        uplink.send(bytes(1 << 16))
        way.loop.dispatch_ready(0)
        if data.count(b"C"):
            break
    assert not uplink.empty
    assert data.count(b"C")


def test_urgent_messages_overtake_deferred_frames(
    way: Way,
) -> None:
    uplink = way.uplink
    made = []

    def pieces(name: bytes) -> Iterator[bytes]:
        for _ in range(50):
            made.append(name)
            yield name * 10_000

    uplink.send_later(pieces(b"a"))
    uplink.send_later(pieces(b"b"))
    for _ in range(100):
        way.loop.dispatch_ready(0)
    assert 0 < len(made) <= 1 + (1 << 16) // 10_000  # what the pipe holds, and one more
    uplink.send(b"stop")
    data = way.rest()
    assert not uplink.holds_back
    assert data.index(b"stop") < (1 << 16) + 10_000
    assert data.replace(b"stop", b"") == (b"a" * 10_000 + b"b" * 10_000) * 50


def test_deferred_frames_are_sent_one_by_one(way: Way) -> None:
    """What else is ready is handled in between."""
    uplink = way.uplink
    uplink.send_later(iter([b"one", b"two"]))
    way.loop.dispatch_ready(0)
    assert os.read(way.out, 100) == b"one"
    uplink.send(b"stop")
    way.loop.dispatch_ready(0)
    assert os.read(way.out, 100) == b"stoptwo"


def test_deferred_frames_for_a_closed_reader_are_closed(way: Way) -> None:
    uplink, closed = way.uplink, []

    def pieces() -> Iterator[bytes]:
        try:
            yield bytes(1 << 20)
            yield b"more"
        finally:
            closed.append(True)

    uplink.send_later(pieces())
    way.loop.dispatch_ready(0)
    way.reader_goes()
    way.loop.dispatch_ready(0)
    uplink.send_later([b"more"])
    assert closed and uplink.empty and uplink.broken

"""The queue of a connection: in order, and what may wait lets messages overtake it."""

import os
from collections.abc import Iterator

import pytest

from mcjax_launch.kernel.wire.loop import Loop
from mcjax_launch.kernel.wire.uplink import Uplink


def taken(loop: Loop, fd: int, uplink: Uplink) -> bytes:
    """All that comes out at the other end."""
    data = b""
    while not uplink.empty:
        data += os.read(fd, 1 << 16)
        loop.turn(0)
    os.set_blocking(fd, False)
    try:
        while piece := os.read(fd, 1 << 16):
            data += piece
    except BlockingIOError:
        pass
    return data


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for fd in ends:
        os.close(fd)


def test_what_may_wait_gets_its_turn_beside_a_stream_that_never_ends(
    pipe: tuple[int, int],
) -> None:
    out, fd = pipe
    loop = Loop()
    uplink = Uplink(fd, loop)
    uplink.send(bytes(1 << 18))
    for number in range(3):
        uplink.send_later([bytes([65 + number]) * (1 << 14)])
    data = b""
    for _ in range(100):
        data += os.read(out, 1 << 16)
        uplink.send(bytes(1 << 16))
        loop.turn(0)
        if data.count(b"C"):
            break
    assert not uplink.empty
    assert data.count(b"C")


def test_nothing_is_kept_for_a_reader_that_is_gone() -> None:
    out, fd = os.pipe()
    uplink = Uplink(fd, Loop())
    uplink.send_later([bytes(1 << 20)])
    os.close(out)
    uplink.flush()
    uplink.send_later([b"more"])
    assert uplink.empty and uplink.broken
    os.close(fd)


def test_messages_overtake_what_may_wait_and_nothing_is_made_before_there_is_room(
    pipe: tuple[int, int],
) -> None:
    out, fd = pipe
    loop = Loop()
    uplink = Uplink(fd, loop)
    made = []

    def pieces(name: bytes) -> Iterator[bytes]:
        for _ in range(50):
            made.append(name)
            yield name * 10_000

    uplink.send_later(pieces(b"a"))
    uplink.send_later(pieces(b"b"))
    for _ in range(100):
        loop.turn(0)
    assert 0 < len(made) <= 1 + (1 << 16) // 10_000  # what the pipe holds, and one more
    uplink.send(b"stop")
    data = taken(loop, out, uplink)
    assert not uplink.holds_back
    assert data.index(b"stop") < (1 << 16) + 10_000
    assert data.replace(b"stop", b"") == (b"a" * 10_000 + b"b" * 10_000) * 50


def test_one_frame_of_what_may_wait_is_sent_at_a_time(pipe: tuple[int, int]) -> None:
    """What else is ready is handled in between."""
    out, fd = pipe
    loop = Loop()
    uplink = Uplink(fd, loop)
    uplink.send_later(iter([b"one", b"two"]))
    loop.turn(0)
    assert os.read(out, 100) == b"one"
    uplink.send(b"stop")
    loop.turn(0)
    assert os.read(out, 100) == b"stoptwo"


def test_what_waits_for_a_reader_that_is_gone_is_let_go() -> None:
    out, fd = os.pipe()
    loop = Loop()
    uplink = Uplink(fd, loop)
    closed = []

    def pieces() -> Iterator[bytes]:
        try:
            yield bytes(1 << 20)
            yield b"more"
        finally:
            closed.append(True)

    uplink.send_later(pieces())
    loop.turn(0)
    os.close(out)
    loop.turn(0)
    assert closed and uplink.empty and uplink.broken
    os.close(fd)

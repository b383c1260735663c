"""The queue of a connection: in order, and what may wait lets messages overtake it."""

import os

from mcjax_launch.protocol.loop import Loop
from mcjax_launch.protocol.uplink import Uplink


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


def test_a_message_overtakes_what_may_wait() -> None:
    out, fd = os.pipe()
    loop = Loop()
    uplink = Uplink(fd, loop)
    pieces = [bytes([number]) * 10_000 for number in range(100)]
    for piece in pieces:
        uplink.send_later(piece)
    assert uplink.holds_back
    uplink.send(b"stop")
    data = taken(loop, out, uplink)
    assert not uplink.holds_back
    # Behind the pipe's own buffer, and one batch.
    assert data.index(b"stop") < (1 << 16) + (1 << 15)
    assert data.replace(b"stop", b"") == b"".join(pieces)


def test_what_may_wait_gets_its_turn_beside_a_stream_that_never_ends() -> None:
    out, fd = os.pipe()
    loop = Loop()
    uplink = Uplink(fd, loop)
    uplink.send(bytes(1 << 18))
    for number in range(3):
        uplink.send_later(bytes([65 + number]) * (1 << 14))
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
    uplink.send_later(bytes(1 << 20))
    os.close(out)
    uplink.flush()
    uplink.send_later(b"more")
    assert uplink.empty and uplink.broken

"""Outputs whose reader is slow, or that somebody else is to write on."""

import os
import threading
import time
import tty
from collections.abc import Iterator

import pytest

from mcjax_launch.journal import sink
from mcjax_launch.machine.loop import Loop

LINES = b"".join(b"line %d\n" % n for n in range(10_000))


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    ends = os.openpty()
    tty.setraw(ends[1])
    yield ends
    for fd in ends:
        os.close(fd)


def shown(screen: int, stream: sink.Sink, size: int) -> bytes:
    """This many bytes of what comes out once somebody reads."""
    seen = b""
    while len(seen) < size:
        stream.flush()
        seen += os.read(screen, size - len(seen))
    return seen


def test_held_output_is_not_lost(
    terminal: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink, "_LAST_WRITE_S", 0)
    loop = Loop()
    stream = sink.Sink(terminal[1], loop)
    stream.write([LINES])
    stream.hold()
    stream.write([b"more\n"])
    written = stream.taken - stream.queued
    assert 0 < written < len(LINES)
    whole = shown(terminal[0], stream, written)
    stream.release()
    assert whole + shown(terminal[0], stream, stream.taken - written) == LINES + b"more\n"
    loop.close()


def test_what_is_queued_is_written_before_a_debugger_prints(terminal: tuple[int, int]) -> None:
    loop = Loop()
    stream = sink.Sink(terminal[1], loop)
    stream.write([LINES])
    assert stream.queued
    seen: list[bytes] = []
    reader = threading.Thread(target=lambda: seen.append(read_all(terminal[0], len(LINES))))
    reader.start()
    stream.hold()
    assert stream.queued == 0
    reader.join()
    assert seen == [LINES]
    loop.close()


def test_end_of_the_reader_is_noticed_though_nothing_is_written() -> None:
    reader, writer = os.pipe()
    loop, gone = Loop(), list[OSError | None]()
    stream = sink.Sink(writer, loop)
    stream.watch(gone.append)
    os.close(reader)
    loop.dispatch_ready(time.monotonic() + 10)
    assert (gone, stream.gone) == ([None], True)
    os.close(writer)
    loop.close()


def test_launcher_sleeps_once_the_reader_has_caught_up() -> None:
    reader, writer = os.pipe()
    loop = Loop()
    stream = sink.Sink(writer, loop)
    lines = LINES * 20
    stream.write([lines])
    assert stream.queued
    seen = b""
    while len(seen) < len(lines):
        seen += os.read(reader, 1 << 20)
        loop.dispatch_ready(time.monotonic())
    end = time.monotonic() + 0.1
    loop.dispatch_ready(end)
    assert time.monotonic() >= end
    loop.close()
    for fd in (reader, writer):
        os.close(fd)


def read_all(screen: int, size: int) -> bytes:
    seen = b""
    while len(seen) < size:
        seen += os.read(screen, size - len(seen))
    return seen

"""A terminal that somebody else is to write on."""

import os
import tty
from collections.abc import Iterator

import pytest

from mcjax_launch.events import sink
from mcjax_launch.kernel.wire.loop import Loop

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


@pytest.mark.parametrize("piece", [5, len(LINES)])
def test_partly_written_line_is_completed_by_the_next_writer(
    terminal: tuple[int, int], monkeypatch: pytest.MonkeyPatch, piece: int
) -> None:
    monkeypatch.setattr(sink, "_LAST_WRITE_S", 0)
    screen, theirs = terminal
    loop = Loop()
    stream = sink.Sink(theirs, loop, lambda: None)
    stream.write([LINES[at : at + piece] for at in range(0, len(LINES), piece)])
    begun = stream.hold()
    written = stream.taken - stream.queued - len(begun)
    assert 0 < written < len(LINES)
    whole = shown(screen, stream, written) + begun
    assert begun.count(b"\n") == 1 and begun.endswith(b"\n")
    stream.release()
    assert whole + shown(screen, stream, len(LINES) - len(whole)) == LINES
    loop.close()


def test_terminal_that_took_all_text_gets_no_remainder(terminal: tuple[int, int]) -> None:
    loop = Loop()
    stream = sink.Sink(terminal[1], loop, lambda: None)
    stream.write([b"one\n", b"begun"])
    assert stream.hold() == b""
    assert shown(terminal[0], stream, 9) == b"one\nbegun"
    loop.close()

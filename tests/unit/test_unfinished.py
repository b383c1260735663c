"""Unfinished lines wait for their ends, but not for ever."""

from mcjax_launch.console.pieces import Fragment, Lines, Stream
from mcjax_launch.console.unfinished import MOMENT_S, UnfinishedLines
from mcjax_launch.wire.frames import STDERR, STDOUT

ONE, TWO = Stream(0, STDOUT), Stream(0, STDERR)


def test_waiting_line_is_passed_on_in_parts() -> None:
    unfinished = UnfinishedLines()
    unfinished.feed(ONE, b"Na", 1.0)
    unfinished.feed(ONE, b"me? ", 1.2)
    assert unfinished.deadline == 1.0 + MOMENT_S
    assert unfinished.expire(1.2) == []
    assert unfinished.expire(1.0 + MOMENT_S) == [Fragment(ONE, b"Name? ")]
    assert unfinished.deadline is None
    assert unfinished.feed(ONE, b"B", 2.0) == [Fragment(ONE, b"B")]
    end, lines = unfinished.feed(ONE, b"ob\nthanks\nNext? ", 2.0)
    assert (end, lines.text) == (Fragment(ONE, b"ob\n"), b"thanks\n")
    assert unfinished.deadline == 2.0 + MOMENT_S
    assert unfinished.feed(ONE, b"yes\n", 2.1) == [Lines(ONE, b"Next? ", b"yes\n", 4)]


def test_some_lines_wait_longer() -> None:
    unfinished = UnfinishedLines(lambda begun: 3.0 if begun.startswith(b"slow") else 0.0)
    unfinished.feed(ONE, b"slow", 0.0)
    unfinished.feed(TWO, b"quick", 1.0)
    assert unfinished.expire(1.0 + MOMENT_S) == [Fragment(TWO, b"quick")]
    assert unfinished.deadline == 3.0 + MOMENT_S


def test_the_end_of_a_stream_ends_its_line() -> None:
    unfinished = UnfinishedLines()
    unfinished.feed(ONE, b"begun", 0.0)
    unfinished.expire(1.0)
    unfinished.feed(TWO, b"waits", 1.0)
    assert [piece.text for piece in unfinished.finish()] == [b"waits\n", b"\n"]
    assert unfinished.finish() == []
    assert unfinished.deadline is None


def test_lines_of_an_examined_rank_are_ended() -> None:
    """Then what comes begins other lines, but for the newline itself."""
    unfinished, other = UnfinishedLines(), Stream(1, STDOUT)
    unfinished.feed(ONE, b"begun", 0.0)
    unfinished.feed(other, b"of another", 0.0)
    unfinished.expire(1.0)
    unfinished.feed(TWO, b"waits", 1.0)
    assert unfinished.end(0) == [Lines(TWO, b"waits", b"\n", 1), Fragment(ONE, b"\n", is_cut=True)]
    assert unfinished.end(0) == []
    assert unfinished.feed(ONE, b"\n", 1.0) == []
    assert [piece.text for piece in unfinished.feed(TWO, b" more\n\n", 1.0)] == [b" more\n\n"]
    assert unfinished.feed(other, b"\n", 1.0) == [Fragment(other, b"\n")]


def test_a_moment_in_which_nothing_is_read_does_not_count() -> None:
    unfinished = UnfinishedLines(lambda begun: 3.0 if begun.startswith(b"slow") else 0.0)
    unfinished.feed(ONE, b"cut", 0.0)
    unfinished.feed(TWO, b"slow", 0.0)
    unfinished.pause()
    assert unfinished.deadline is None
    assert unfinished.expire(100.0) == []
    unfinished.resume(100.0)
    unfinished.resume(100.1)
    assert unfinished.deadline == 100.0 + MOMENT_S
    assert unfinished.feed(TWO, b" end\n", 100.1) == [Lines(TWO, b"slow", b" end\n", 5)]
    assert unfinished.expire(100.0 + MOMENT_S) == [Fragment(ONE, b"cut")]


def test_a_line_is_not_withheld_however_often_its_reader_stops() -> None:
    unfinished, now = UnfinishedLines(), 0.0
    unfinished.feed(ONE, b"Name? ", now)
    while not (shown := unfinished.expire(now)):
        unfinished.pause()
        now += MOMENT_S / 2
        unfinished.resume(now)
        assert now < 100 * MOMENT_S
    assert shown == [Fragment(ONE, b"Name? ")]
    assert now > 5 * MOMENT_S

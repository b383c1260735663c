"""Unfinished lines wait for their ends, but not for ever."""

from mcjax_launch.console.pieces import Fragment, Lines, Stream
from mcjax_launch.console.unfinished import LONGEST, MOMENT_S, UnfinishedLines
from mcjax_launch.kernel.wire.frames import STDERR, STDOUT

ONE, TWO = Stream(0, STDOUT), Stream(0, STDERR)


def test_whole_lines_do_not_wait() -> None:
    unfinished, data = UnfinishedLines(), b"a\nb\n"
    [lines] = unfinished.feed(ONE, data, 0.0)
    assert lines == Lines(ONE, b"", data, len(data))
    assert lines.data is data
    assert unfinished.deadline is None


def test_an_end_joins_its_beginning() -> None:
    unfinished = UnfinishedLines()
    assert unfinished.feed(ONE, b"a", 0.0) == []
    assert unfinished.feed(ONE, b"b", 0.1) == []
    [lines] = unfinished.feed(ONE, b"c\nd\ne", 0.2)
    assert lines == Lines(ONE, b"ab", b"c\nd\ne", 4)
    assert lines.text == b"abc\nd\n"
    assert unfinished.deadline == 0.2 + MOMENT_S


def test_streams_are_kept_apart() -> None:
    unfinished = UnfinishedLines()
    unfinished.feed(ONE, b"one", 0.0)
    unfinished.feed(TWO, b"two", 0.0)
    assert [piece.text for piece in unfinished.feed(ONE, b"\n", 0.0)] == [b"one\n"]
    assert [piece.text for piece in unfinished.feed(TWO, b"\n", 0.0)] == [b"two\n"]


def test_a_line_that_has_waited_is_handed_on_in_parts() -> None:
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


def test_a_huge_line_does_not_wait() -> None:
    unfinished = UnfinishedLines()
    assert unfinished.feed(ONE, b"x" * LONGEST, 0.0) == []
    assert unfinished.feed(ONE, b"x", 0.0) == [Fragment(ONE, b"x" * (LONGEST + 1))]
    assert unfinished.feed(ONE, b"x\n", 0.0) == [Fragment(ONE, b"x\n")]


def test_some_lines_have_more_time() -> None:
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


def test_the_lines_of_a_rank_that_somebody_looks_at_are_ended() -> None:
    """Then what comes begins other lines, but for the newline itself."""
    unfinished, other = UnfinishedLines(), Stream(1, STDOUT)
    unfinished.feed(ONE, b"begun", 0.0)
    unfinished.feed(other, b"of another", 0.0)
    unfinished.expire(1.0)
    unfinished.feed(TWO, b"waits", 1.0)
    assert unfinished.end(0) == [Lines(TWO, b"waits", b"\n", 1), Fragment(ONE, b"\n")]
    assert unfinished.end(0) == []
    assert unfinished.feed(ONE, b"\n", 1.0) == []
    assert [piece.text for piece in unfinished.feed(TWO, b" more\n\n", 1.0)] == [b" more\n\n"]
    assert unfinished.feed(other, b"\n", 1.0) == [Fragment(other, b"\n")]

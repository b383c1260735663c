"""Chunks in, whole prefixed lines out."""

import random

import pytest

from mcjax_launch.console.lines import AGAIN_S, GOES_ON, LONGEST, MOMENT_S, Live, Plain, Source


def text(pieces: "list[bytes | memoryview]") -> bytes:
    return b"".join(pieces)


def finish(plain: Plain, source: Source) -> bytes:
    """A stream's end, maybe without a last newline."""
    return text(plain.feed(source, b"\n", 0.0)) if source.partial else b""


@pytest.mark.parametrize(
    ("chunks", "shown"),
    [
        ([b"a\n"], b"0: a\n"),
        ([b"a\nb\n"], b"0: a\n0: b\n"),
        ([b"a", b"b\n"], b"0: ab\n"),
        ([b"a\nb", b"c\nd", b"\n"], b"0: a\n0: bc\n0: d\n"),
        ([b"\n\n"], b"0: \n0: \n"),
        ([b"1%\r2%\r", b"3%\n"], b"0: 1%\r2%\r3%\n"),
        ([b"\xff\x00\n"], b"0: \xff\x00\n"),
        ([b"no end"], b"0: no end\n"),
    ],
)
def test_plain(chunks: list[bytes], shown: bytes) -> None:
    plain, source = Plain(), Source(b"0: ")
    out = b"".join(text(plain.feed(source, chunk, 0.0)) for chunk in chunks)
    assert out + finish(plain, source) == shown


def test_any_cut_gives_the_same() -> None:
    rng = random.Random(1)
    data = bytes(rng.choice(b"ab\n\r") for _ in range(3000))
    whole = Plain()
    source = Source(b"[3] ")
    expected = text(whole.feed(source, data, 0.0)) + finish(whole, source)
    for _ in range(20):
        plain, source, at, out = Plain(), Source(b"[3] "), 0, b""
        while at < len(data):
            size = rng.randint(1, 200)
            out += text(plain.feed(source, data[at : at + size], 0.0))
            at += size
        assert out + finish(plain, source) == expected


def test_an_unfinished_line_is_due_after_a_moment_and_continues_in_place() -> None:
    plain, source = Plain(), Source(b"0: ")
    assert text(plain.feed(source, b"Name? ", 5.0)) == b""
    assert source.due == 5.0 + MOMENT_S
    assert text(plain.expire(source)) == b"0: Name? "
    assert text(plain.feed(source, b"Bob\nthanks\n", 6.0)) == b"Bob\n0: thanks\n"


def test_an_interrupted_line_is_shown_whole_in_the_end() -> None:
    plain, one, two = Plain(), Source(b"0: "), Source(b"1: ")
    plain.feed(one, b"loading", 0.0)
    assert text(plain.expire(one)) == b"0: loading"
    assert text(plain.feed(two, b"hello\n", 1.0)) == b"\n1: hello\n"
    plain.feed(one, b"...", 2.0)
    assert one.due == 2.0 + AGAIN_S
    assert text(plain.feed(one, b" done\n", 2.0)) == b"0: loading... done\n"


def test_interrupted_progress_is_shown_again_where_it_stands() -> None:
    plain, one, two = Plain(), Source(b"0: "), Source(b"1: ")
    plain.feed(one, b"\r10%", 0.0)
    plain.expire(one)
    plain.feed(two, b"hello\n", 1.0)
    plain.feed(one, b"\r20%\r30%", 2.0)
    assert text(plain.expire(one)) == b"0: 30%"
    assert text(plain.feed(one, b"\r100%\n", 3.0)) == b"\n0: \r10%\r20%\r30%\r100%\n"


def test_own_lines_do_not_join_a_prompt() -> None:
    plain, source = Plain(), Source(b"0: ")
    plain.feed(source, b"Name? ", 0.0)
    plain.expire(source)
    assert text(plain.own(b"note\n")) == b"\nnote\n"


def test_a_huge_line_comes_in_pieces() -> None:
    plain, source = Plain(), Source(b"0: ")
    out = text(plain.feed(source, b"x" * (LONGEST + 10), 0.0))
    assert out == b"0: " + b"x" * LONGEST + GOES_ON
    assert text(plain.feed(source, b"y\n", 0.0)) == b"0: " + b"x" * 10 + b"y\n"


def test_live_rows_are_redrawn_in_place() -> None:
    live, one, two = Live(lambda: 24), Source(b"0: "), Source(b"1: ")
    live.feed(one, b"\r10%", 0.0)
    live.feed(two, b"\r20%", 0.0)
    live.expire(one)
    both = text(live.expire(two))
    assert both.startswith(b"\r\x1b[J")
    assert b"\x1b[?7l0: 10%\x1b[0m\n1: 20%\x1b[0m\x1b[?7h" in both
    done = text(live.feed(one, b"\r100%\n", 1.0))
    assert done.startswith(b"\r\x1b[1A\x1b[J0: 100%\n")
    assert b"1: 20%" in done
    assert one.due is None


def test_live_rows_fit_the_terminal() -> None:
    live = Live(lambda: 5)
    for n in range(9):
        source = Source(b"%d: " % n)
        live.feed(source, b"bar", 0.0)
        shown = text(live.expire(source))
    assert shown.count(b"bar") == 2
    assert b"(and 7 more)" in shown

"""Chunks in, prefixed lines out: unfinished lines and the two renderers."""

import random
import re

import pytest

from mcjax_launch.console.pieces import Fragment, Lines, Stream, make_lines
from mcjax_launch.console.renderers import AGAIN_S, GOES_ON, GROWS_S, Live, Plain
from mcjax_launch.console.unfinished import LONGEST, MOMENT_S, UnfinishedLines
from mcjax_launch.wire.frames import STDOUT


def text(pieces: "list[bytes | memoryview]") -> bytes:
    return b"".join(pieces)


class Shown:
    """What a renderer makes of the chunks of streams."""

    def __init__(self, renderer: Plain | Live) -> None:
        self.renderer = renderer
        self.unfinished = UnfinishedLines()

    def render(self, pieces: "list[Lines | Fragment]", now: float) -> bytes:
        out = b""
        for piece in pieces:
            if isinstance(piece, Lines):
                out += text(self.renderer.render_lines(piece))
            else:
                out += text(self.renderer.render_fragment(piece, now))
        return out

    def feed(self, stream: Stream, chunk: bytes, now: float = 0.0) -> bytes:
        return self.render(self.unfinished.feed(stream, chunk, now), now)

    def expire(self, now: float) -> bytes:
        shown = self.render(self.unfinished.expire(now), now)
        return shown + text(self.renderer.expire(now))

    def finish(self) -> bytes:
        """All streams end, maybe without a last newline."""
        return self.render(self.unfinished.finish(), 0.0)

    @property
    def deadline(self) -> float | None:
        times = (self.unfinished.deadline, self.renderer.deadline)
        return min((at for at in times if at is not None), default=None)


def stream(rank: int, prefix: bytes | None = None) -> Stream:
    return Stream(rank, STDOUT, b"%d: " % rank if prefix is None else prefix)


@pytest.mark.parametrize(
    ("chunks", "shown"),
    [
        ([b"a\nb", b"c\nd", b"\n"], b"0: a\n0: bc\n0: d\n"),
        ([b"\n\n"], b"0: \n0: \n"),
        ([b"1%\r2%\r", b"3%\n"], b"0: 1%\r0: 2%\r0: 3%\n"),
        ([b"a\n\r\r1%\r2%\n"], b"0: a\n0: \r\r0: 1%\r0: 2%\n"),
        ([b"a\r\nb\r", b"\n"], b"0: a\r\n0: b\r\n"),
        ([b"\xff\x00\n"], b"0: \xff\x00\n"),
        ([b"no end"], b"0: no end\n"),
    ],
)
def test_plain_output_prefixes_lines(chunks: list[bytes], shown: bytes) -> None:
    plain, source = Shown(Plain()), stream(0)
    out = b"".join(plain.feed(source, chunk) for chunk in chunks)
    assert out + plain.finish() == shown


def test_chunk_borders_do_not_matter() -> None:
    rng = random.Random(1)
    data = bytes(rng.choice(b"ab\n\r") for _ in range(3000))
    whole = Shown(Plain())
    expected = whole.feed(stream(3, b"[3] "), data) + whole.finish()
    returning = re.sub(rb"\r([ab])", rb"\r[3] \1", data)
    assert expected == b"".join(b"[3] " + line + b"\n" for line in returning.split(b"\n"))
    for _ in range(20):
        plain, source, at, out = Shown(Plain()), stream(3, b"[3] "), 0, b""
        while at < len(data):
            size = rng.randint(1, 200)
            out += plain.feed(source, data[at : at + size])
            at += size
        assert out + plain.finish() == expected


def test_growing_unfinished_line_is_continued_after_a_moment() -> None:
    plain, source = Plain(), stream(0)
    assert text(plain.render_fragment(Fragment(source, b"."), 5.0)) == b"0: ."
    for now in (6.0, 6.1):
        assert plain.render_fragment(Fragment(source, b"."), now) == []
    assert plain.deadline == 6.0 + GROWS_S
    assert plain.expire(6.1) == []
    assert text(plain.expire(6.0 + GROWS_S)) == b".."
    assert text(plain.render_fragment(Fragment(source, b" done\n"), 7.0)) == b" done\n"
    assert plain.deadline is None


def test_an_interrupted_line_is_shown_whole_in_the_end() -> None:
    plain, first, second = Shown(Plain()), stream(0), stream(1)
    plain.feed(first, b"loading", 0.0)
    assert plain.expire(MOMENT_S) == b"0: loading"
    assert plain.feed(second, b"hello\n", 1.0) == b"\n1: hello\n"
    plain.feed(first, b"...", 2.0)
    assert plain.deadline == 2.0 + AGAIN_S
    assert plain.feed(first, b" done\n", 2.0) == b"0: loading... done\n"


@pytest.mark.parametrize("prefix", [b"0: ", b""])
@pytest.mark.parametrize(
    ("later", "rest"),
    [
        ([], b""),  # nothing is left to show
        ([b" b"], b"P b\n"),
        ([b" b", b" c"], b"P b\n1: x\nP c\n"),
        ([b"\rb", b"\rc"], b"Pb\n1: x\nPc\n"),
    ],
)
def test_a_line_that_never_ends_is_shown_once(
    prefix: bytes, later: list[bytes], rest: bytes
) -> None:
    """Whatever other ranks print in between, and when the rank is ended in the line."""
    plain, first, second = Shown(Plain()), stream(0, prefix), stream(1)
    plain.feed(first, b"a", 0.0)
    out = plain.expire(MOMENT_S)
    for number, chunk in enumerate(later):
        out += plain.feed(second, b"x\n", number) + plain.feed(first, chunk, number)
        out += plain.expire(number + AGAIN_S)
    out += plain.feed(second, b"x\n", 9.0) + plain.finish()
    assert out == prefix + b"a\n1: x\n" + rest.replace(b"P", prefix) + (b"1: x\n" if later else b"")


def test_interrupted_progress_is_shown_again_where_it_stands() -> None:
    plain, first, second = Shown(Plain()), stream(0), stream(1)
    plain.feed(first, b"\r10%", 0.0)
    plain.expire(MOMENT_S)
    plain.feed(second, b"hello\n", 1.0)
    plain.feed(first, b"\r20%\r30%", 2.0)
    assert plain.expire(2.0 + AGAIN_S) == b"0: 30%"
    whole = b"\n0: \r0: 10%\r0: 20%\r0: 30%\r0: 100%\n"
    assert plain.feed(first, b"\r100%\n", 5.0) == whole


def test_progress_keeps_its_prefix_in_a_pipe() -> None:
    plain, first = Shown(Plain()), stream(0)
    plain.feed(first, b"\r10%\r", 0.0)
    assert plain.expire(MOMENT_S) == b"0: \r0: 10%"  # maybe it is the end of a line
    plain.feed(first, b"20%\r", 2.0)
    assert plain.expire(2.0 + GROWS_S) == b"\r0: 20%"
    assert plain.feed(first, b"\n", 5.0) == b"\r\n"


def test_own_lines_do_not_join_a_prompt() -> None:
    plain = Plain()
    plain.render_fragment(Fragment(stream(0), b"Name? "), 0.0)
    assert text(plain.render_own(b"note\n")) == b"\nnote\n"


def test_a_huge_line_comes_in_pieces() -> None:
    plain, source = Shown(Plain()), stream(0)
    out = plain.feed(source, b"x" * (LONGEST + 10))
    assert out == b"0: " + b"x" * LONGEST + GOES_ON
    assert plain.deadline == GROWS_S
    assert plain.feed(source, b"y\n") == b"0: " + b"x" * 10 + b"y\n"


def test_no_part_of_a_long_line_is_shown_twice() -> None:
    """A slow line of two ranks, of which each interrupts the other's."""
    plain, out, now = Shown(Plain()), b"", 0.0
    streams = {stream(0): b"a", stream(1): b"b"}
    for _ in range(40):
        for source, letter in streams.items():
            out += plain.feed(source, letter * 100_000, now)
            now += 2 * AGAIN_S
            out += plain.expire(now)
    out += plain.finish()
    assert out.replace(GOES_ON, b"").count(b"a") == out.count(b"b") == 4_000_000


def test_the_time_of_day_comes_before_each_prefix() -> None:
    plain, source = Plain(stamp=lambda: b"12:00 "), stream(0)
    assert text(plain.render_lines(make_lines(source, b"a\nb\n"))) == b"12:00 0: a\n12:00 0: b\n"
    assert text(plain.render_fragment(Fragment(source, b"c"), 0.0)) == b"12:00 0: c"


def test_live_rows_are_redrawn_in_place() -> None:
    live, first, second = Shown(Live(lambda: 24)), stream(0), stream(1)
    live.feed(first, b"\r10%", 0.0)
    live.feed(second, b"\r20%", 0.1)
    live.expire(MOMENT_S)
    both = live.expire(0.1 + MOMENT_S)
    assert both.startswith(b"\x1b[?2026h\r\x1b[2K\x1b[J") and both.endswith(b"\x1b[?2026l")
    assert b"\x1b[?7l0: 10%\x1b[0m\n1: 20%\x1b[0m\x1b[?7h" in both
    done = live.feed(first, b"\r100%\n", 1.0)
    assert done.startswith(b"\x1b[?2026h\r\x1b[2K\x1b[1A\x1b[2K\x1b[J0: 100%\n")
    assert b"1: 20%" in done
    assert live.deadline is None
    live.feed(second, b"\r30%", 2.0)
    assert b"1: 30%" in live.expire(2.0 + GROWS_S)
    assert live.deadline is None


def test_live_rows_are_not_drawn_in_the_background() -> None:
    """Nothing is drawn, or erased, while the terminal's foreground is another's."""
    ours = True
    live, first, second = Live(lambda: 24, is_in_foreground=lambda: ours), stream(0), stream(1)
    assert b"0: 10%" in text(live.render_fragment(Fragment(first, b"10%"), 0.0))
    ours = False
    assert text(live.render_lines(make_lines(second, b"hello\n"))) == b"1: hello\n"
    live.render_fragment(Fragment(first, b"\r20%"), 1.0)
    assert text(live.expire(2.0)) == b""
    ours = True
    live.render_fragment(Fragment(first, b"\r30%"), 3.0)
    assert text(live.expire(4.0)) == b"\x1b[?7l0: 30%\x1b[0m\x1b[?7h"


def test_live_rows_are_drawn_anew_after_a_stop() -> None:
    """What the shell has written meanwhile is not erased."""
    live, source = Live(lambda: 24), stream(0)
    live.render_fragment(Fragment(source, b"10%"), 0.0)
    assert text(live.render_again()) == b"\x1b[?7l0: 10%\x1b[0m\x1b[?7h"


def test_live_rows_fit_the_terminal() -> None:
    live = Live(lambda: 5)
    for n in range(9):
        shown = text(live.render_fragment(Fragment(stream(n), b"bar"), 0.0))
    assert shown.count(b"bar") == 2
    assert b"(and 7 more)" in shown

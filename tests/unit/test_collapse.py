"""Equal lines of several ranks, shown once."""

import functools
import random

from mcjax_launch.console.collapse import (
    FLOOD,
    FLOOD_S,
    MOMENT_S,
    MOST_HELD,
    MOST_RECENT,
    Collapse,
    Flood,
    LineGroup,
)
from mcjax_launch.console.pieces import Fragment, Lines, Stream, make_lines
from mcjax_launch.ranks import format_ranges
from mcjax_launch.wire.frames import STDERR, STDOUT


def lines(groups: list[LineGroup]) -> list[str]:
    return [f"[{format_ranges(group.ranks)}] {group.text.decode()}" for group in groups]


@functools.cache
def of_rank(rank: int, stream: int) -> Stream:
    return Stream(rank, stream)


def printed(rank: int, *texts: bytes, stream: int = STDOUT) -> Lines:
    return make_lines(of_rank(rank, stream), b"".join(text + b"\n" for text in texts))


def feed(collapse: Collapse, rank: int, text: str, now: float = 0.0) -> list[str]:
    return lines(collapse.feed(printed(rank, *text.encode().split()), now))


def test_line_not_printed_by_all_ranks_waits_briefly() -> None:
    collapse = Collapse(3)
    feed(collapse, 0, "a", 1.0)
    feed(collapse, 2, "b a", 1.1)
    assert collapse.deadline == 1.0 + MOMENT_S
    assert lines(collapse.expire(1.0 + MOMENT_S)) == ["[2] b", "[0,2] a"]
    assert collapse.deadline is None


def test_the_order_of_each_rank_is_kept() -> None:
    collapse = Collapse(2)
    feed(collapse, 0, "a b c")
    assert feed(collapse, 1, "c a") == ["[0] a", "[0] b", "[0-1] c"]
    assert lines(collapse.flush()) == ["[1] a"]


def test_lines_of_one_rank_in_between_are_ignored() -> None:
    collapse = Collapse(3)
    feed(collapse, 0, "a u0 b v0 c")
    feed(collapse, 1, "a u1 v1 b c")
    assert feed(collapse, 2, "a") == ["[0-2] a"]
    assert feed(collapse, 2, "u2 b") == ["[0] u0", "[1] u1", "[1] v1", "[2] u2", "[0-2] b"]
    assert feed(collapse, 2, "c") == ["[0] v0", "[0-2] c"]


def test_rank_that_prints_alone_does_not_wait() -> None:
    collapse = Collapse(3)
    assert feed(collapse, 0, "a", 1.0) == []
    assert lines(collapse.expire(1.0 + MOMENT_S)) == ["[0] a"]
    assert feed(collapse, 0, "b", 3.0) == ["[0] b"]
    assert feed(collapse, 1, "b", 3.1) == []  # it does not print alone any more
    assert feed(collapse, 0, "c", 3.2) == []
    assert feed(collapse, 1, "c", 3.3) == []
    assert feed(collapse, 2, "b c", 3.4) == ["[1-2] b", "[0-2] c"]


def test_lines_stop_waiting_after_three_mismatches() -> None:
    collapse = Collapse(2)
    for at in (1.0, 3.0, 5.0):
        assert feed(collapse, 0, f"a{at}", at) == feed(collapse, 1, f"b{at}", at) == []
        assert len(collapse.expire(at + MOMENT_S)) == 2
    assert (feed(collapse, 0, "x", 7.0), feed(collapse, 1, "y", 7.0)) == (["[0] x"], ["[1] y"])
    assert feed(collapse, 1, "x", 7.1 + MOMENT_S) == ["[1] x"]  # too late to be the same line
    assert feed(collapse, 0, "x", 7.1 + 2 * MOMENT_S) == []  # and this is not: both wait again
    assert feed(collapse, 1, "x", 7.1 + 2 * MOMENT_S) == ["[0-1] x"]


def test_few_unmatched_lines_are_remembered() -> None:
    """A rank that prints alone may print for days."""
    collapse = Collapse(2)
    feed(collapse, 0, "a", 1.0)
    collapse.expire(1.0 + MOMENT_S)
    for number in range(MOST_RECENT + 1):
        assert feed(collapse, 0, f"{number}", 3.0) == [f"[0] {number}"]
    collapse.feed(printed(1, b"0"), 3.0)
    assert feed(collapse, 0, "forgotten", 3.0) == ["[0] forgotten"]
    collapse.feed(printed(1, b"2"), 3.0)
    assert feed(collapse, 0, "remembered", 3.0) == []


def test_line_joins_an_equal_line_that_may_follow_its_ranks_last() -> None:
    collapse = Collapse(3)
    feed(collapse, 2, "alone")
    feed(collapse, 0, "a b")
    assert feed(collapse, 2, "a") == []
    assert feed(collapse, 1, "a b") == ["[2] alone", "[0-2] a"]
    assert feed(collapse, 2, "b") == ["[0-2] b"]


def test_streams_are_kept_apart() -> None:
    collapse = Collapse(2)
    collapse.feed(printed(0, b"a", stream=STDOUT), 0.0)
    assert collapse.feed(printed(1, b"a", stream=STDERR), 0.0) == []


def test_part_of_a_line_overtakes_nothing_of_its_rank() -> None:
    collapse = Collapse(3)
    feed(collapse, 0, "a b")
    assert collapse.flush_before(Fragment(Stream(1, STDOUT), b"Name? ")) == []
    assert lines(collapse.flush_before(Fragment(Stream(0, STDERR), b"Name? "))) == [
        "[0] a",
        "[0] b",
    ]
    assert collapse.flush_before(Fragment(Stream(0, STDERR), b"Bob\n")) == []


def test_lines_bear_the_time_when_they_came() -> None:
    stamps = iter([b"1 ", b"2 "])
    collapse = Collapse(2, lambda: next(stamps))
    collapse.feed(printed(0, b"a"), 0.0)
    assert [group.stamp for group in collapse.feed(printed(1, b"a"), 0.1)] == [b"1 "]


def test_single_rank_never_waits() -> None:
    assert feed(Collapse(1), 7, "a b") == ["[7] a", "[7] b"]


def test_a_flood_is_not_held_back() -> None:
    collapse, out = Collapse(2), 0
    for _ in range(3):
        out += len(collapse.feed(printed(0, *[b"x" * 100] * 4000), 0.0))
        assert (12000 - out) * 100 <= MOST_HELD
    assert out > 0
    assert len(collapse.feed(printed(0, b"y" * MOST_HELD), 0.0)) == 12000 - out + 1


def test_lines_of_a_flood_follow_earlier_lines_of_their_rank() -> None:
    collapse, flood = Collapse(2), printed(0, b"x" * FLOOD)
    feed(collapse, 0, "a")
    assert not collapse.is_too_much(printed(0, b"b"), 10.0)
    assert collapse.is_too_much(flood, 10.1)
    assert lines(collapse.flush_before(flood)) == ["[0] a"]
    assert collapse.flush_before(flood) == []


def test_flood_lasts_a_while_longer_than_its_lines() -> None:
    flood, half = Flood(), FLOOD_S / 2
    assert not flood.detect(FLOOD, 100)
    assert flood.detect(1, 100 + half)
    assert flood.detect(FLOOD - 1, 100 + 2 * half)  # as much as before
    assert flood.detect(2, 100 + 3 * half)
    assert flood.detect(1, 100 + 4 * half)
    assert not flood.detect(1, 100 + 6 * half)  # little since then
    assert flood.detect(FLOOD, 100 + 6.5 * half)
    assert not flood.detect(1, 200)  # and nothing
    for second in range(10):
        assert not flood.detect(FLOOD // 2, 300 + second)


def test_nothing_is_lost_or_reordered_by_chance() -> None:
    rng = random.Random(2)
    for _ in range(30):
        ranks, collapse, now = 4, Collapse(4), 0.0
        said: dict[int, list[bytes]] = {rank: [] for rank in range(ranks)}
        out: list[LineGroup] = []
        for _ in range(60):
            rank, now = rng.randrange(ranks), now + rng.random() * 0.05
            texts = [rng.choice([b"a", b"b", b"c"]) for _ in range(rng.randrange(1, 5))]
            said[rank] += texts
            out += collapse.feed(printed(rank, *texts), now) + collapse.expire(now)
        out += collapse.flush()
        for rank in range(ranks):
            assert [group.text for group in out if rank in group.ranks] == said[rank]

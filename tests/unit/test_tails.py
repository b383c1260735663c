"""The last bytes of each rank's streams."""

import pytest

from mcjax_launch.journal.tails import TAIL_BYTES, Tails
from mcjax_launch.wire.frames import STDERR, STDOUT


def test_tails_are_bounded() -> None:
    tails = Tails(for_record=False)
    tails.feed(3, STDERR, b"begin")
    tails.feed(3, STDERR, b"x" * TAIL_BYTES)
    tails.feed(3, STDERR, b"end\xff")
    assert tails.get_tails(3) == ("", "x" * (TAIL_BYTES - 4) + "end\N{REPLACEMENT CHARACTER}")
    assert tails.get_tails(4) == ("", "")


def test_tails_have_no_colours() -> None:
    tails = Tails()
    tails.feed(0, STDERR, b"\x1b[1;35mValueErr")
    tails.feed(0, STDERR, b"or\x1b[0m: \x1b[38;5;9mx\x1b[m")
    assert tails.get_tails(0)[1] == "ValueError: x"


def test_tails_of_stdout_are_kept_for_the_record_only() -> None:
    for for_record in (True, False):
        tails = Tails(for_record)
        tails.feed(0, STDOUT, b"out")
        tails.feed(0, STDERR, b"err")
        assert tails.get_tails(0) == ("out" if for_record else "", "err")


@pytest.mark.parametrize(
    ("ranks", "kept"), [(1, 128 << 10), (64, 128 << 10), (256, 32 << 10), (4000, 16 << 10)]
)
def test_tails_for_the_record_are_longer_and_share_memory(ranks: int, kept: int) -> None:
    tails = Tails(for_record=True)
    tails.expect(ranks)
    for n in range(30_000):
        tails.feed(0, STDOUT, b"line %08d\n" % n)
    out = tails.get_tails(0)[0]
    assert len(out) == kept
    assert out.endswith("line 00029998\nline 00029999\n")


def test_overwritten_progress_takes_no_room() -> None:
    tails = Tails(for_record=True)
    tails.expect(1)
    tails.feed(0, STDERR, b"before\r\n")
    for n in range(30_000):
        tails.feed(0, STDERR, b"\repoch %05d" % n)
    lines = tails.get_tails(0)[1].split("\n")
    assert lines[0] == "before\r"
    assert lines[1].endswith("\repoch 29999")


def test_host_paths_in_tails_are_shown_as_the_users() -> None:
    tails = Tails(rewrite=lambda data: data.replace(b"/tmp/stage", b"/home/me"))
    tails.feed(0, STDERR, b'File "/tmp/st')
    tails.feed(0, STDERR, b'age/train.py"')
    assert tails.get_tails(0) == ("", 'File "/home/me/train.py"')

"""What comes while a debugger has the screen."""

from mcjax_launch.console.aside import Aside
from mcjax_launch.console.pieces import Fragment, Stream, make_lines
from mcjax_launch.wire.frames import STDERR, STDOUT

ONE, ERRORS, TWO = (
    Stream(1, STDOUT, b"[1] "),
    Stream(1, STDERR, b"[1] "),
    Stream(2, STDOUT, b"[2] "),
)


def test_lines_of_a_rank_are_removed_in_order() -> None:
    aside = Aside()
    lines, own, part = make_lines(TWO, b"other\n"), b"mcjax-launch: own\n", Fragment(TWO, b"be")
    aside.add(make_lines(ONE, b"a\nb\n"))
    aside.add(lines)
    aside.add(make_lines(ERRORS, b"c\n"))
    aside.add(own)
    aside.add(Fragment(ONE, b"d"))
    aside.add(part)
    aside.add(Fragment(ONE, b"e\n"))
    assert aside.size == 4 + 6 + 2 + len(own) + 1 + 2 + 2
    assert aside.pop_lines(1) == b"[1] a\n[1] b\n[1] c\n[1] de\n"
    assert aside.pop_lines(1) == b""
    assert aside.size == 6 + len(own) + 2
    assert aside.pop_all() == [lines, own, part]
    assert aside.size == 0

"""Commands that ranks run under."""

import pytest

from mcjax_launch.options.wrappers import Wrapper, get_wrapper_words, list_commands, parse


def test_wrappers_are_parsed() -> None:
    parsed = {
        "strace -f": Wrapper(None, ("strace", "-f")),
        "all:strace -f": Wrapper(None, ("strace", "-f")),
        "0,2-3:gdb -ex run --args": Wrapper(frozenset({0, 2, 3}), ("gdb", "-ex", "run", "--args")),
        "1: env 'A=b c'": Wrapper(frozenset({1}), ("env", "A=b c")),
        "perf record -e cycles:u": Wrapper(None, ("perf", "record", "-e", "cycles:u")),
        "./tool:1": Wrapper(None, ("./tool:1",)),
    }
    assert {text: parse(text) for text in parsed} == parsed


@pytest.mark.parametrize("text", ["", "0:", " ", "'", "2-1:env", "gdb -ex run", "0:/usr/bin/gdb"])
def test_malformed_wrapper_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"write|closing|after --args"):
        parse(text)


def test_wrappers_of_a_rank_are_chosen() -> None:
    wrappers = [parse("a 1"), parse("1,3:b"), parse("{host}/c"), parse("2:a 2")]
    assert get_wrapper_words(wrappers, 0) == ["a", "1", "{host}/c"]
    assert get_wrapper_words(wrappers, 1) == ["a", "1", "b", "{host}/c"]
    assert list_commands(wrappers, [0]) == ("a",)
    assert list_commands(wrappers, [2, 3]) == ("a", "b")
    assert list_commands(wrappers[1:], [0]) == ()

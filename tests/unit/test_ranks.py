"""Sets of ranks as text."""

import re
from pathlib import Path

import pytest

import mcjax_launch
from mcjax_launch.ranks import (
    format_all_ranks,
    format_count,
    format_ranges,
    format_ranks,
    inflect_have,
    parse_ranges,
)


def test_rank_ranges_are_parsed_and_written() -> None:
    sets = {"0": {0}, "0,4-7": {0, 4, 5, 6, 7}, "3-4,6,9-11": {3, 4, 6, 9, 10, 11}}
    assert {text: parse_ranges(text) for text in sets} == sets
    assert {format_ranges(ranks): ranks for ranks in sets.values()} == sets


def test_written_ranges_are_parsed_to_the_same_ranks() -> None:
    """Every set of the ranks 0 to 7 but the empty one."""
    for bits in range(1, 256):
        ranks = {rank for rank in range(8) if bits >> rank & 1}
        assert parse_ranges(format_ranges(ranks)) == ranks


def test_unusual_rank_ranges_are_parsed() -> None:
    ranks = {" 0 , 2 ": {0, 2}, "2,0-1,1": {0, 1, 2}, "3-3": {3}, "007": {7}}
    assert {text: parse_ranges(text) for text in ranks} == ranks


@pytest.mark.parametrize("text", ["", ",", "0,", "a", "-1", "3-1", "0-", "1 2", "0x1", "1.0", "٣"])
def test_malformed_rank_ranges_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a set of ranks: write 0 or 0,4-7"):
        parse_ranges(text)


def test_error_for_a_long_set_shows_the_wrong_part() -> None:
    with pytest.raises(ValueError, match=r"^'1-x' is not a set of ranks: "):
        parse_ranges("1," * 100 + "1-x")


def test_all_ranks_of_two_are_both() -> None:
    assert [format_all_ranks(count) for count in (2, 3)] == ["both ranks", "all 3 ranks"]


def test_all_ranks_are_worded_in_one_place() -> None:
    """Of two it would be `all 2`."""
    files = Path(mcjax_launch.__file__).parent.rglob("*.py")
    texts = {path: path.read_text() for path in files if path.name != "ranks.py"}
    assert [path for path, text in texts.items() if re.search(r"\ball (the )?\{", text)] == []


@pytest.mark.parametrize("text", ["65536", "0-99999999999", "1" * 5000])
def test_ranks_above_the_maximum_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=f"rank {text.rpartition('-')[2]} is more than 65535"):
        parse_ranges(text)


def test_rank_sets_have_matching_nouns_and_verbs() -> None:
    assert (format_ranks([3]), inflect_have([3])) == ("rank 3", "has")
    assert (format_ranks([2, 0, 1, 5]), inflect_have([0, 1])) == ("ranks 0-2,5", "have")


def test_counted_nouns_have_a_plural() -> None:
    assert [format_count(number, "slot") for number in (0, 1, 2)] == [
        "0 slots",
        "1 slot",
        "2 slots",
    ]

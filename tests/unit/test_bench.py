"""What scripts/bench makes of the numbers it has measured."""

import json

import pytest
from benchmarks import one_rank
from benchmarks.measure import Grid, Measure, Result, Spread, from_json, to_json
from benchmarks.table import markdown, put_into

STARTUP = Measure("start", "ms", {"mcjax-launch": [80.0, 90.0, 100.0], "loop": [20.0, 45.0, 50.0]})
END = Measure("end", "ms", {"mcjax-launch": [10.0], "parallel": [20.0]})
FAULTS = Grid("left behind", {"a rank ends": {"ours": "none"}, "KILL": {"ours": "none", "b": "3"}})
RESULTS: dict[str, list[Result]] = {"startup": [STARTUP, END], "faults": [FAULTS]}


def test_spread_holds_median_and_middle_half() -> None:
    assert Spread.of([5.0]) == Spread(5.0, 5.0, 5.0)
    assert Spread.of([4.0, 1.0, 2.0, 3.0, 100.0]) == Spread(3.0, 2.0, 4.0)


def test_ratios_are_of_what_was_measured_in_the_same_round() -> None:
    ratio = STARTUP.ratio("loop")
    assert ratio is not None and ratio.median == 2.0  # of 4, 2 and 2
    assert STARTUP.ratio("mcjax-launch") is None
    assert Measure("", "", {"loop": [1.0]}).ratio("loop") is None  # ours has failed
    assert Measure("", "", {"mcjax-launch": [1.0], "zero": [0.0]}).ratio("zero") is None
    other = Measure("", "", {"a": [6.0], "b": [2.0]}, base="a").ratio("b")
    assert other is not None and other.median == 3.0


def test_one_rank_is_as_much_later_as_in_the_same_round() -> None:
    hand = [[0.02, 0.5, 0.6, 0.7, 0.8], [0.04, 1.5, 1.6, 1.7, 1.8]]
    later = [[at + (n + 1) / 10 for at in run] for n, run in enumerate(hand)]
    grid = one_rank.compare({"by hand": hand, "ours": later})
    assert grid.cells["`import jax`"] == {
        "by hand": "1.00 s",
        "ours": "+150 ms (+125 to +175)",
    }


def test_results_are_written_as_tables() -> None:
    assert markdown(RESULTS, {"cores": "2", "jax": ""}) == (
        "Measured in turn. cores: 2.\n\n"
        "| startup: median; mcjax-launch / this | mcjax-launch | loop | parallel |\n"
        "|---|---|---|---|\n"
        "| start | 90.0 ms | 2.00 (2.00-3.00) |  |\n"
        "| end | 10.0 ms |  | 0.50 |\n\n"
        "| left behind | ours | b |\n"
        "|---|---|---|\n"
        "| a rank ends | none |  |\n"
        "| KILL | none | 3 |\n"
    )


def test_saved_results_can_be_read_again() -> None:
    saved = json.loads(json.dumps(to_json(RESULTS)))
    assert saved["startup"][0]["spread"]["loop"]["median"] == 45.0
    assert saved["startup"][0]["ratio"]["loop"]["median"] == 2.0
    assert from_json(saved) == RESULTS


def test_tables_take_their_place_in_a_page() -> None:
    page = "# Title\n\n<!-- me -->\nold\n<!-- /me -->\n\nmore\n"
    new = put_into(page, "| new |\n", "me")
    assert new == "# Title\n\n<!-- me -->\n\n| new |\n\n<!-- /me -->\n\nmore\n"
    assert put_into(new, "| new |\n", "me") == new
    with pytest.raises(ValueError, match="no lines"):
        put_into(new, "| new |\n", "another")

"""What options take: durations, sets of ranks, whole numbers."""

import click
import pytest

from mcjax_launch.cli.param_types import Duration, Ranks, WholeNumber


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("1.5m", 90), ("2h", 7200), ("0", 0)]
)
def test_duration(text: str, seconds: float) -> None:
    assert Duration().convert(text, None, None) == seconds


@pytest.mark.parametrize("text", ["", "x", "-1", "5 m", "1d"])
def test_not_a_duration(text: str) -> None:
    with pytest.raises(click.BadParameter):
        Duration().convert(text, None, None)


def test_ranks() -> None:
    assert Ranks().convert("0,4-6", None, None) == {0, 4, 5, 6}


@pytest.mark.parametrize("text", ["", "x", "0", "-1", "1.5"])
def test_not_a_whole_number(text: str) -> None:
    with pytest.raises(click.BadParameter):
        WholeNumber(1, 9).convert(text, None, None)

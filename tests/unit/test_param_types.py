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


@pytest.mark.parametrize("text", ["", "x", "0", "-1", "1.5", "1_0", "²", "٣"])
def test_not_a_whole_number(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not a whole number of 1 or more"):
        WholeNumber(1, 9).convert(text, None, None)


@pytest.mark.parametrize(("text", "number"), [("1", 1), ("9", 9), (" 007 ", 7)])
def test_whole_number(text: str, number: int) -> None:
    assert WholeNumber(1, 9).convert(text, None, None) == number


@pytest.mark.parametrize("text", ["10", "9" * 5000])
def test_too_many(text: str) -> None:
    with pytest.raises(click.BadParameter, match=f"'{text}' is more than 9"):
        WholeNumber(1, 9).convert(text, None, None)


def test_an_endless_duration() -> None:
    assert Duration().convert("9" * 5000, None, None) < float("inf")

"""What options take: durations and sets of ranks."""

import click
import pytest

from mcjax_launch.cli.command import Duration, Ranks


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("1.5m", 90), ("2h", 7200), ("0", 0)]
)
def test_duration(text: str, seconds: float) -> None:
    assert Duration().convert(text, None, None) == seconds


@pytest.mark.parametrize("text", ["", "x", "-1", "5 m", "1d"])
def test_no_duration(text: str) -> None:
    with pytest.raises(click.BadParameter):
        Duration().convert(text, None, None)


def test_ranks() -> None:
    assert Ranks().convert("0,4-6", None, None) == {0, 4, 5, 6}

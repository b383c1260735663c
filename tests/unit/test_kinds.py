"""What options take: durations, sets of ranks, whole numbers."""

import re

import pytest

from mcjax_launch.features.compile_once.options import CACHE, split_cache
from mcjax_launch.features.preload.options import parse_modules
from mcjax_launch.features.profile.options import split_profile
from mcjax_launch.options import kinds
from mcjax_launch.options.options import Options


def test_durations_are_parsed() -> None:
    seconds: dict[str, float] = {
        "90": 90,
        "90s": 90,
        "1.5m": 90,
        "2h": 7200,
        "0": 0,
        "0s": 0,
        "1h30m": 5400,
    }
    seconds |= {"1d": 86400, "1d2h3m4.5s": 93784.5, "1m30s": 90, "2h1s": 7201}
    assert {text: kinds.parse_duration(text) for text in seconds} == seconds


@pytest.mark.parametrize("text", ["", "x", "-1", "5 m", "1w", "30m1h", "1h30", "h", "1e3", "1h1h"])
def test_malformed_durations_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        kinds.parse_duration(text)


def test_zero_is_no_limit() -> None:
    assert kinds.parse_limit("0") is None
    assert kinds.parse_limit("0h") is None
    assert kinds.parse_limit("1d") == 86400


@pytest.mark.parametrize("text", ["", "x", "0", "-1", "1.5", "1_0", "²", "٣"])
def test_malformed_whole_numbers_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a whole number of 1 or more"):
        kinds.make_number_kind(1, 9).read(text)


def test_whole_numbers_are_parsed() -> None:
    assert [kinds.make_number_kind(1, 9).read(text) for text in ("1", "9", " 007 ")] == [1, 9, 7]


@pytest.mark.parametrize("text", ["10", "9" * 5000])
def test_too_large_numbers_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=f"'{text}' is more than 9"):
        kinds.make_number_kind(1, 9).read(text)


def test_huge_duration_stays_finite() -> None:
    assert kinds.parse_duration("9" * 5000) < float("inf")


@pytest.mark.parametrize(("text", "folder", "gib"), [
    ("c", "c", 0), ("a:b/c", "a:b/c", 0), ("c:5G", "c", 5), ("c:512mb", "c", 0.5),
    ("a:b:2GiB", "a:b", 2), ("c:1.5G", "c", 1.5),
])  # fmt: skip
def test_cache_value_is_parsed(text: str, folder: str, gib: float) -> None:
    assert split_cache(text) == (folder, gib * 2**30)


@pytest.mark.parametrize("text", ["c:50Q", "c:0", "c:0G", "c:5", ":5G", ""])
def test_malformed_cache_value_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="write DIR or DIR:5G"):
        CACHE.read(text)


def test_profile_value_needs_a_folder() -> None:
    assert split_profile("a@b@2m") == ("a@b", 120)
    with pytest.raises(ValueError, match="write DIR or DIR@30s"):
        split_profile("@30s")


@pytest.mark.parametrize("text", ["os/path", "a b", "1a", "jax,-v"])
def test_invalid_module_name_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not the name of a module"):
        parse_modules(text)


@pytest.mark.parametrize(
    ("option", "value", "why"),
    [
        ("profile", ":", "':' names no folder"),
        ("profile", "@5", "'@5' names no folder"),
        ("compile_cache", "x:y", "'y' is not a size"),
        ("compile_cache", "x:", "'' is not a size"),
    ],
)
def test_likely_mistake_is_not_a_folder(option: str, value: str, why: str) -> None:
    with pytest.raises(ValueError, match=re.escape(why)):
        Options.declared[option].read(value)
    assert Options.declared["compile_cache"].read("a:b/c") == "a:b/c"

"""What the pytest plugin makes of marks, of its ranks' outcomes, and of its options."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mcjax_launch.features.pytest import controller, marks
from mcjax_launch.features.pytest.in_rank import Ran
from mcjax_launch.features.pytest.ranks import read_cache_option

mcjax = pytest.mark.mcjax


@pytest.mark.parametrize(
    ("mark", "words"),
    [
        (mcjax(processses=2), "mcjax(processses=...): it takes processes, cpu_devices, slices, "),
        (mcjax(2), "mcjax takes names: write mcjax(processes=2)"),
        (mcjax(cpu_devices=2), "mcjax(): how many? write mcjax(processes=2)"),
        (mcjax(processes=[]), "mcjax(processes=[]): how many?"),
        (mcjax(processes=[2]), "mcjax(processes=...): a list parametrizes functions; give one"),
        (mcjax(processes=4, slices=3), "mcjax(slices=3): 4 ranks cannot be split into 3 equal"),
        (mcjax(processes=4, slices="x"), "mcjax(slices='x'): 'x' is not auto, one, host or a "),
        (mcjax(processes=0), "mcjax(processes=0): 0 is not a whole number of 1 or more"),
        (mcjax(processes=2, timeout="x"), "mcjax(timeout='x'): 'x' is not a duration"),
        (mcjax(processes=2, compile_once=1), "mcjax(compile_once=1): 1 is not one of auto, on, "),
    ],
)
def test_invalid_mark_is_refused(mark: pytest.MarkDecorator, words: str) -> None:
    marked: Any = SimpleNamespace(iter_markers=lambda _: [mark.mark])
    with pytest.raises(marks.WrongMark) as refused:
        marks.read(marked)
    assert str(refused.value).startswith(words)


def ran(outcome: str, **more: object) -> Ran:
    own = {"outcome": outcome, "longrepr": None, **more}
    return Ran([{"outcome": "passed"}, own], [], 0.0)


def test_failure_counts_before_what_is_expected_and_a_skip() -> None:
    """A test that is expected to fail does so if it fails in one rank."""
    in_order = [
        ran("failed", longrepr={"reprcrash": {}}),
        ran("skipped", wasxfail="known"),
        ran("failed", longrepr="[XPASS(strict)] known"),
        ran("skipped", longrepr=("test_it.py", 5, "Skipped: no")),
    ]
    assert [controller.get_precedence(own) for own in in_order] == [0, 1, 2, 3]


# --- the folder of compiled programs ---


def read_cache(option: str | None, setting: str = "") -> str | None:
    config: Any = SimpleNamespace(
        option=SimpleNamespace(mcjax_compile_cache=option),
        rootpath=Path("/root"),
        invocation_params=SimpleNamespace(dir=Path("/here")),
        getini=lambda _: setting,
    )
    return read_cache_option(config)


@pytest.mark.parametrize(
    ("option", "setting", "cache"),
    [
        (None, "", None),
        ("kept:5G", "other", "/here/kept:5G"),
        (None, "kept", "/root/kept"),
        (None, "/kept:1G", "/kept:1G"),
        ("", "kept", None),  # on the command line for one session
    ],
)
def test_compile_cache_setting_decides_on_the_folder(
    option: str | None, setting: str, cache: str | None
) -> None:
    assert read_cache(option, setting) == cache


def test_cache_without_a_folder_is_refused() -> None:
    with pytest.raises(pytest.UsageError, match="--mcjax-compile-cache: ':1G' names no folder"):
        read_cache(":1G")
    with pytest.raises(pytest.UsageError, match="mcjax_compile_cache: ':1G' names no folder"):
        read_cache(None, ":1G")

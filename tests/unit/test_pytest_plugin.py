"""What the pytest plugin makes of marks, of its ranks' outcomes, and of its options."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mcjax_launch.python.pytest_plugin import controller, marks
from mcjax_launch.python.pytest_plugin.compiled import CompiledPrograms
from mcjax_launch.python.pytest_plugin.in_rank import Ran

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


CacheOf = Callable[..., str | None]


@pytest.fixture
def cache_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CacheOf:
    """What ranks are told, by the option, the setting and what xdist has told this process."""
    monkeypatch.delitem(sys.modules, "jax", raising=False)
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)

    def cache_of(option: str | None = None, setting: str = "", worker: Any = None) -> str | None:
        config: Any = SimpleNamespace(
            option=SimpleNamespace(mcjax_compile_cache=option),
            rootpath=Path("/root"),
            invocation_params=SimpleNamespace(dir=Path("/here")),
            _tmp_path_factory=SimpleNamespace(getbasetemp=lambda: tmp_path),
            getini=lambda _: setting,
            add_cleanup=lambda _: None,
            workerinput=worker or {},
        )
        cache = CompiledPrograms(config).cache
        return cache and cache.replace(str(tmp_path), "/base")

    return cache_of


@pytest.mark.parametrize(
    ("option", "setting", "cache"),
    [
        (None, "", "/base/mcjax-compiled:2G"),
        ("kept:5G", "other", "/here/kept:5G"),
        (None, "kept", "/root/kept"),
        (None, "/kept:1G", "/kept:1G"),
        ("", "kept", "/base/mcjax-compiled:2G"),  # on the command line for one session
    ],
)
def test_compile_cache_setting_decides_on_the_folder(
    cache_of: CacheOf, option: str | None, setting: str, cache: str
) -> None:
    assert cache_of(option, setting) == cache


def test_worker_uses_the_folder_of_its_session(cache_of: CacheOf) -> None:
    shared = {"mcjax_compiled": "/session/mcjax-compiled"}
    assert cache_of(worker=shared) == "/session/mcjax-compiled:2G"
    assert cache_of("kept", worker=shared) == "/here/kept"
    assert cache_of(worker={}) == "/base/mcjax-compiled:2G"  # on another host


def test_cache_of_jax_is_not_hidden(cache_of: CacheOf, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set up in the user's environment, or in a conftest.py."""
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "/of-jax")
    assert cache_of() is None
    assert cache_of("kept") == "/here/kept"
    config = SimpleNamespace(jax_compilation_cache_dir=None)
    monkeypatch.setitem(sys.modules, "jax", SimpleNamespace(config=config))
    assert cache_of() == "/base/mcjax-compiled:2G"
    config.jax_compilation_cache_dir = "/of-jax"
    assert cache_of() is None


def test_cache_without_a_folder_is_refused(cache_of: CacheOf) -> None:
    with pytest.raises(pytest.UsageError, match="--mcjax-compile-cache: ':1G' names no folder"):
        cache_of(":1G")
    with pytest.raises(pytest.UsageError, match="mcjax_compile_cache: ':1G' names no folder"):
        cache_of(setting=":1G")

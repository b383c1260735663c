"""What -v says at the end of programs that were compiled, loaded or neither."""

from types import SimpleNamespace
from typing import Any

import pytest

from mcjax_launch.features.compile_once.launcher import CompilationCounter
from mcjax_launch.features.compile_once.messages import Awaits, ShareCompiled
from mcjax_launch.journal.facts import AwaitsCompilation
from mcjax_launch.journal.rank_run import Compilations
from mcjax_launch.wire.hook_messages import Compiling
from mcjax_launch.wire.messages import FromHook

ALONE = "each rank has compiled its own programs"
STEP = Compiling("step", "train.py:3", "cpu")


def said(*ranks: Compilations) -> list[str]:
    lines: list[str] = []
    state = SimpleNamespace(
        ranks={n: SimpleNamespace(compilations=had) for n, had in enumerate(ranks)}
    )
    launcher: Any = SimpleNamespace(state=state, console=SimpleNamespace(show_detail=lines.append))
    CompilationCounter(launcher).on_summary(None)  # type: ignore[arg-type]
    return [line.removeprefix("--compile-once: ") for line in lines]


@pytest.mark.parametrize(
    ("ranks", "line"),
    [
        (
            [Compilations(compiled=2, compiled_s=3.0), Compilations(loaded=2, saved_s=2.5)],
            ["2 programs compiled in 3 s, 2 loaded, which saved 2.5 s of compiling"],
        ),
        (
            [Compilations(loaded=1, saved_s=2.5)],
            ["0 programs compiled, 1 loaded, which saved 2.5 s of compiling"],
        ),
        ([Compilations(latest=STEP)], [ALONE]),
        ([Compilations(latest=STEP, under_way=1)], []),
        ([Compilations()], []),
    ],
    ids=["shared", "loaded", "alone", "killed while compiling", "none"],
)
def test_last_line_summarizes_shared_compilations(
    ranks: list[Compilations], line: list[str]
) -> None:
    assert said(*ranks) == line


def test_wait_for_what_another_rank_compiles_is_known() -> None:
    known: list[object] = []
    launcher: Any = SimpleNamespace(journal=SimpleNamespace(append=known.append))
    CompilationCounter(launcher).on_message(None, FromHook(1, Awaits(0)), 0.0)  # type: ignore[arg-type]
    assert known == [AwaitsCompilation(1, 0)]


@pytest.mark.parametrize(
    ("ranks", "cache", "shares"),
    [(1, "", False), (2, "", True), (1, "/cache", True)],
)
def test_hosts_share_if_there_is_something_to_share_with(
    ranks: int, cache: str, shares: bool
) -> None:
    job = SimpleNamespace(compile_cache=cache, compile_cache_bytes=5, compile_once="auto")
    launcher: Any = SimpleNamespace(job=job)
    orders = CompilationCounter(launcher).make_orders([None] * ranks, None)  # type: ignore[arg-type, list-item]
    assert tuple(orders) == ((ShareCompiled("auto", cache, 5),) if shares else ())

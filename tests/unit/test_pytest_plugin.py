"""What the pytest plugin makes of its ranks' reports, and of the launcher's words."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mcjax_launch.pytest_plugin import controller, marks, merge, reprs
from mcjax_launch.pytest_plugin.compiled import CompiledPrograms
from mcjax_launch.pytest_plugin.merge import EarlyEnd
from mcjax_launch.pytest_plugin.progress import Early, RanksProgress, TimeLimit

LOCATION = ("test_it.py", 4, "test_one")
mcjax = pytest.mark.mcjax


def report(
    when: str = "call", outcome: str = "passed", words: str = "", **more: object
) -> pytest.TestReport:
    longrepr: Any = None
    if outcome == "failed":
        longrepr = reprs.make_repr("AssertionError", words, LOCATION)
    elif outcome == "skipped":
        longrepr = ("test_it.py", 5, f"Skipped: {words}")
    return pytest.TestReport(
        "test_it.py::test_one",
        LOCATION,
        {},
        outcome,  # type: ignore[arg-type]
        longrepr,
        when,  # type: ignore[arg-type]
        **more,  # type: ignore[arg-type]
    )


def message_of(made: pytest.TestReport) -> str:
    """Return the message of a report that says where a test failed."""
    found: Any = made.longrepr
    return str(found.reprcrash.message)


def through(*calls: pytest.TestReport) -> dict[int, list[pytest.TestReport]]:
    """Ranks that came through, each with this report of its call."""
    return {rank: [report("setup"), call, report("teardown")] for rank, call in enumerate(calls)}


def item(expected: str | None) -> Any:
    """As much of a test as reports need."""
    xfail = pytest.mark.xfail(reason=expected or "", strict=False).mark
    return SimpleNamespace(
        nodeid="test_it.py::test_one",
        location=LOCATION,
        keywords={},
        config=SimpleNamespace(option=SimpleNamespace(runxfail=False)),
        iter_markers=lambda name: [] if expected is None else [xfail],
    )


def merged(
    reports: dict[int, list[pytest.TestReport]],
    troubled: tuple[int, ...] = (),
    ended: EarlyEnd | None = None,
    expected: str | None = None,
) -> dict[str, pytest.TestReport]:
    progress = RanksProgress(reports, None, 0)
    progress.reports, progress.troubled = reports, list(troubled)
    made = merge.merge_reports(item(expected), progress, ended)
    assert (
        len({made_report.when for made_report in made}) == len(made) and made[-1].when == "teardown"
    )
    return {made_report.when: made_report for made_report in made}


def xfailed(reason: str) -> pytest.TestReport:
    found = report(outcome="skipped", words=reason)
    found.wasxfail = reason
    return found


def test_all_ranks_passing_is_one_result() -> None:
    made = merged(through(report(duration=1.0), report(duration=2.5)))
    assert [made_report.outcome for made_report in made.values()] == ["passed"] * 3
    assert made["call"].duration == 2.5


def test_sections_are_each_ranks_own() -> None:
    gloo = (
        "[Gloo] Rank 0 is connected to 1 peer ranks. Expected number of connected peer ranks is : 1"
    )
    first = report(sections=[("Captured stdout call", f"one\n{gloo}\n")])
    second = report(sections=[("Captured stdout call", f"{gloo}\n"), ("Captured log call", "two")])
    made = merged(through(first, second))["call"]
    assert made.sections == [
        ("Captured stdout call, rank 0", "one\n"),
        ("Captured log call, rank 1", "two"),
    ]


@pytest.mark.parametrize(("count", "words"), [(2, "both ranks"), (3, "all 3 ranks")])
def test_equal_failures_are_merged(count: int, words: str) -> None:
    failed = (report(outcome="failed", words="no") for _ in range(count))
    made = merged(through(*failed), tuple(range(count))[::-1])
    assert made["call"].failed
    assert message_of(made["call"]) == f"ranks 0-{count - 1}: no"
    assert f"{words} failed alike" in made["call"].longreprtext


def test_the_first_failure_is_shown() -> None:
    calls = [report(outcome="failed", words=words) for words in ("b", "a", "a")]
    made = merged(through(*calls, report()), (2, 0, 1))["call"]
    assert message_of(made) == "ranks 1-2: a"
    assert "ranks 1-2 failed: see above\nrank 0 failed: b (test_it.py:5)\nrank 3 passed" in (
        made.longreprtext
    )


@pytest.mark.parametrize(
    ("calls", "outcome", "words"),
    [
        ([report(outcome="skipped", words="x")] * 2, "skipped", ""),
        (
            [report(outcome="skipped", words="x"), report()],
            "failed",
            "the ranks disagree: rank 0 skipped, rank 1 passed",
        ),
        ([xfailed("known"), xfailed("known")], "skipped", "known"),
        (
            [xfailed("known"), report()],
            "skipped",
            "known (rank 0 failed as expected, rank 1 passed)",
        ),
    ],
)
def test_outcomes_of_ranks_are_merged(
    calls: list[pytest.TestReport], outcome: str, words: str
) -> None:
    made = merged(through(*calls), (0,))["call"]
    assert made.outcome == outcome
    assert words in (getattr(made, "wasxfail", "") or made.longreprtext)


def test_skip_in_the_setup_of_one_rank_is_a_failure() -> None:
    """What the other did afterwards is not a second result of the test."""
    reports = through(report(), report(outcome="failed", words="alone"))
    reports[0] = [report("setup", "skipped", "no"), report("teardown")]
    made = merged(reports, (0, 1))
    assert list(made) == ["setup", "teardown"] and made["setup"].failed
    assert "rank 0 skipped, rank 1 passed" in made["setup"].longreprtext


def crash(*ranks: int) -> EarlyEnd:
    what = "rank 1 crashed: exit status 3"
    return EarlyEnd("Crashed", what, frozenset(ranks), "crashed", True, 7.0, (), {})


def test_a_crash_belongs_to_the_phase_of_its_rank() -> None:
    """Even if what another rank has reported of an earlier phase is not there yet."""
    made = merged({0: [], 1: [report("setup")]}, (), crash(1))
    assert list(made) == ["setup", "call", "teardown"]
    assert made["call"].failed and made["setup"].passed and made["teardown"].passed
    assert message_of(made["call"]) == "rank 1 crashed: exit status 3"


def test_a_failure_for_the_loss_of_the_crashed_rank_is_no_cause() -> None:
    lost = "jax.errors.JaxRuntimeError: Gloo: Connection closed by peer"
    for words, shown in ((lost, "rank 1 crashed: exit status 3"), ("bad", "rank 0: bad")):
        reports = {
            0: [report("setup"), report(outcome="failed", words=words)],
            1: [report("setup")],
        }
        made = merged(reports, (0,), crash(1))["call"]
        assert message_of(made) == shown


ABORTED = (
    "F client.h:80] Terminating process because the JAX distributed service detected fatal errors"
)


LEFT = "exit status 0, as by os._exit(0)"


@pytest.mark.parametrize(
    ("statuses", "gone", "through", "said", "told"),
    [
        ([0, 134, 134], [0], [], {}, (0, LEFT)),
        ([0, 134, 134], [1, 0], [], {1: ABORTED, 2: ABORTED}, (0, LEFT)),
        ([0, 134, 134], [0, 1], [], {}, (0, LEFT)),
        # Its end was seen before that of rank 0, for which JAX aborted it.
        ([0, 134, 134], [1], [], {}, (0, LEFT)),
        ([0, 134, 134], [1], [0], {}, (1, "ended with 134 (ranks 1-2 did)")),
        ([0, 134, 134], [1], [0], {1: ABORTED, 2: ABORTED}, (1, "ended with 134 (ranks 1-2 did)")),
        ([0, 139, 139], [0, 1], [], {}, (1, "ended with 139 (ranks 1-2 did)")),
        ([134, 139, 0], [0], [2], {0: ABORTED}, (1, "ended with 139")),
        ([0, 0, 0], [2], [0, 1], {}, (2, LEFT)),
        # Rank 0 fails, because rank 1 has left.
        ([3, 0, 0], [1], [2], {}, (1, LEFT)),
    ],
)
def test_crash_is_blamed_on_the_right_rank(
    statuses: list[int],
    gone: list[int],
    through: list[int],
    said: dict[int, str],
    told: tuple[int, str],
) -> None:
    ranks = [
        SimpleNamespace(
            rank=rank,
            exit_status=status,
            message=f"ended with {status}",
            outcome="failed" if status else "ended",
        )
        for rank, status in enumerate(statuses)
    ]
    first = next((rank for rank in ranks if rank.exit_status), None)
    cause = None
    if first is not None:
        alike = tuple(rank.rank for rank in ranks if rank.exit_status == first.exit_status)
        cause = SimpleNamespace(rank=first.rank, ranks=alike)
    result: Any = SimpleNamespace(ranks=ranks, root_cause=cause)
    output = {rank: ("", said.get(rank, "")) for rank in range(3)}
    unfinished = {0, 1, 2} - set(through)
    assert controller.find_rank_to_blame(result, gone, unfinished, output) == told


def test_rank_that_left_is_known_from_the_launcher() -> None:
    ranks = [
        SimpleNamespace(rank=0, exit_status=0, message="exited with 0", outcome="ended"),
        SimpleNamespace(rank=1, exit_status=134, message="aborted", outcome="consequence"),
    ]
    result: Any = SimpleNamespace(ranks=ranks, root_cause=SimpleNamespace(rank=0, ranks=(0,)))
    assert controller.find_rank_to_blame(result, [0, 1], {0, 1}, {0: (), 1: ()}) == (0, LEFT)


def test_rank_that_passed_the_setup_is_mentioned_once() -> None:
    reports = {0: [report("setup")], 1: [report("setup", "failed", "no")]}
    what = "was still running 1.0 s later, and was ended"
    ended = EarlyEnd("Timeout", f"rank 0 {what}", frozenset([0]), what, False, 0, (), {})
    made = merged(reports, (1,), ended)["setup"]
    assert f"rank 1 failed: see above\nrank 0 {what}" in made.longreprtext
    assert "passed" not in made.longreprtext
    reports[1] = [report("setup", "skipped", "no")]
    made = merged(reports, (1,), ended)["setup"]
    assert message_of(made) == f"the ranks disagree: rank 1 skipped, rank 0 {what}"


def test_the_time_until_the_end_counts() -> None:
    """For the phase in which a test was ended: its ranks could not say how long that took."""
    reports = {0: [report("setup", duration=1.0)], 1: [report("setup", duration=2.0)]}
    made = merged(reports, (), crash(1))
    assert [made_report.duration for made_report in made.values()] == [2.0, 5.0, 0.0]


def test_expected_crash_is_an_xfail() -> None:
    made = merged({0: [report("setup")], 1: [report("setup")]}, (), crash(1), "known")["call"]
    assert made.skipped and made.wasxfail == "known (rank 1 crashed: exit status 3)"


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


# --- when not to wait any longer ---


def progress(limit: TimeLimit | None = None) -> RanksProgress:
    return RanksProgress(range(2), limit, 100.0)


def test_ranks_may_take_their_time() -> None:
    test = progress()
    test.record_report(0, report(), 101.0)
    test.done.add(0)
    assert (test.deadline, test.find_reason_to_end(1000.0), test.running) == (None, None, [1])
    test.done.add(1)
    assert test.complete


def test_a_failure_begins_a_grace() -> None:
    test = progress()
    test.record_report(0, report(outcome="failed"), 102.0)
    assert test.deadline == 104.0  # 1 s, and half of what it took
    assert test.find_reason_to_end(103.9) is None and test.find_reason_to_end(104.0) is Early.STUCK
    test.record_report(1, report(outcome="failed"), 103.0)
    assert test.deadline is None and test.find_reason_to_end(200.0) is None


def test_time_limits_count_from_the_start_of_a_test() -> None:
    test = progress(TimeLimit(5.0, "here"))
    assert test.deadline == 105.0
    test.set_limit(1.0, 101.0)
    assert test.deadline == 102.0 and test.find_reason_to_end(102.0) is Early.TIMED_OUT
    test.gone.append(1)
    assert test.find_reason_to_end(102.0) is Early.CRASHED


# --- the launcher's words ---


def test_last_words_are_cut_to_the_users_lines() -> None:
    text = """
Fatal Python error: Aborted

  File "/work/test_it.py", line 3 in test_it
  File "/v/lib/python3.11/site-packages/_pytest/python.py", line 1 in pyfunc_call
  File "/v/lib/python3.11/runpy.py", line 1 in run

Extension modules: numpy (total: 1)
"""
    assert controller.select_last_lines(text) == [
        "Fatal Python error: Aborted",
        "",
        '  File "/work/test_it.py", line 3 in test_it',
    ]


def test_stacks_leave_out_the_plugins_own_calls() -> None:
    own = [
        "stacks of 2 ranks, innermost call first:",
        "rank 0 (pid 12):",
        "    jax/x.py:1 in wait",
        "  > /work/test_it.py:3 in test_it: wait()",
        "    _pytest/python.py:1 in pyfunc_call",
        "rank 1 (pid 13):",
        "    pluggy/_execution.py:147 in _multicall",
        "    _pytest/main.py:1 in main",
        "ranks 2-3:",
        "    jax/y.py:1 in wait",
        "rank 0: waiting in jit(f) at test_it.py:3, which rank 1 has not reached",
        "hint: another branch",
        "hint: -x XLA_FLAGS=1 makes it an error",
    ]
    expected = ["rank 0:", *own[2:4], *own[8:11]]
    assert controller.select_stacks(own, hints=False) == expected
    assert controller.select_stacks(own, hints=True) == [*expected, "hint: another branch"]
    assert controller.select_stacks([], hints=True) == []


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

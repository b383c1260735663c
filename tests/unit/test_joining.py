"""What keeps ranks apart although each one's call of initialize() is right: tables."""

import signal

import pytest
from records import end_of, failure, run_of, say

from mcjax_launch.diagnosis.initialize_calls import (
    elsewhere,
    other_setting,
    other_version,
    without_partition,
)
from mcjax_launch.diagnosis.summary import summarize, warnings
from mcjax_launch.diagnosis.whereabouts import whereabouts
from mcjax_launch.kernel.wire import hook_messages as hook
from mcjax_launch.runs.state import RunState
from mcjax_launch.watchdog.joining import SEPARATE_S, JoiningRanks, SeparateRanks

NEEDED = ": all processes of a job need the same"
FATAL = (
    "F1120 client.h:80] Terminating process because the JAX distributed service detected fatal "
    "errors. DEADLINE_EXCEEDED: Deadline Exceeded\n"
)


def calls(*versions: str, at: str = "h:1", away: bool = False) -> RunState:
    """Ranks that have called initialize(), with these versions of jax and jaxlib."""
    state = run_of(len(versions))
    for rank, version in enumerate(versions):
        jax, _, jaxlib = version.partition("/")
        call = hook.Joining(at, len(versions), rank, "t.py:3", jax, jaxlib, away and rank == 0)
        say(state, rank, call, 1.0)
    return state


@pytest.mark.parametrize(("versions", "line"), [
    (("2", "2"), ""),
    (("", "2"), ""),  # an agent of another age, or a jax without a version
    (("2", "1"), "rank 1 has jax 1, rank 0 has 2"),
    (("1", "2", "2"), "rank 0 has jax 1, ranks 1-2 have 2"),
    (("2", "1", "2", "1", "2"), "rank 1 has jax 1 (as has rank 3), ranks 0,2,4 have 2"),
    (("2/2", "2/1"), "rank 1 has jaxlib 1, rank 0 has 2"),
    (("2/2", "1/1"), "rank 1 has jax 1, rank 0 has 2"),
])  # fmt: skip
def test_versions(versions: tuple[str, ...], line: str) -> None:
    blame = other_version(calls(*versions))
    assert (str(blame) if blame else "") == (line and line + NEEDED)


@pytest.mark.parametrize(("partitions", "words"), [
    ((None, None), ""),
    ((0, 0), ""),
    ((0, None), "rank 1 has no partition index, rank 0 has: JAX wants it of all processes"),
    ((None, 1, None, 1), "rank 0 has no partition index, nor has rank 2, ranks 1,3 have: JAX "),
])  # fmt: skip
def test_partitions(partitions: tuple[int | None, ...], words: str) -> None:
    state = calls(*([""] * len(partitions)))
    for rank, partition in enumerate(partitions):
        call = hook.Joining("h:1", len(partitions), rank, partition=partition)
        say(state, rank, call, 1.0)
    blame = without_partition(state)
    assert str(blame or "").startswith(words)
    assert bool(blame) == bool(words)
    notes = JoiningRanks()
    assert bool([line for rank in state.ranks for line in notes.notes(state, rank)]) == bool(words)


@pytest.mark.parametrize(("settings", "line"), [
    (({}, {}), ""),
    ((None, {"XLA_FLAGS": "--a"}), ""),  # one of which nothing is known
    (({"XLA_FLAGS": "--a"}, {"XLA_FLAGS": "--a"}), ""),
    (({}, {"JAX_ENABLE_X64": "1"}, {}), "rank 1 has JAX_ENABLE_X64=1, ranks 0,2 have none"),
    (({"JAX_PLATFORMS": "cpu"}, {"JAX_PLATFORMS": "cpu"}, {}), "rank 2 has no JAX_PLATFORMS, ranks 0-1 have JAX_PLATFORMS=cpu"),
    (({"XLA_FLAGS": "--a --b=1"}, {"XLA_FLAGS": "--a --b=2"}), "rank 1 has XLA_FLAGS=--b=2, rank 0 has --b=1"),
])  # fmt: skip
def test_settings(settings: tuple[dict[str, str] | None, ...], line: str) -> None:
    state, notes = calls(*([""] * len(settings))), JoiningRanks()
    for rank, one in enumerate(settings):
        say(state, rank, hook.Joining("h:1", len(settings), rank, settings=one), 1.0)
    assert str(other_setting(state) or "") == (line and line + NEEDED)
    told = [said for rank in state.ranks for said in notes.notes(state, rank)]
    assert told == ([line + NEEDED] if line else [])


def test_an_address_that_is_not_the_machines() -> None:
    assert elsewhere(calls("", "")) is None
    assert str(elsewhere(calls("", "", at="192.0.2.7:5", away=True))) == (
        "rank 0 called initialize() at t.py:3 with coordinator_address=192.0.2.7:5, which is not "
        "an address of its machine"
    )


def test_said_once_and_where_ranks_stand() -> None:
    state, notes = calls("2", "1", away=True), JoiningRanks()
    lines = [*notes.notes(state, 0), *notes.notes(state, 1)]
    assert [line.partition(" ")[2][:12] for line in lines] == ["0 called ini", "1 has jax 1,"]
    assert notes.notes(state, 0) == notes.notes(state, 1) == []
    assert lines[1] in whereabouts(state, 9.0)


@pytest.mark.parametrize(("state", "line"), [
    (calls("2", "1"), "rank 1 has jax 1, rank 0 has 2" + NEEDED),
    (calls("2", "2", away=True), "rank 0 called initialize() at t.py:3 with coordinator_address=h:1, which is not an address of its machine"),
])  # fmt: skip
def test_to_blame_where_all_that_failed_are_victims(state: RunState, line: str) -> None:
    for rank in (0, 1):
        state.exited(end_of(rank, -signal.SIGABRT), 300.0)
        state.ranks[rank].stderr = FATAL
    assert summarize(state).lines[0] == line


LATE = hook.NotJoined(
    "RuntimeError", "initialize() must be called before any JAX calls that might ...", "t.py:2"
)
AT, WHY = "initialize() at t.py:3 failed in", "before that line"
OF_BOTH = (
    f"these are 2 separate single-process jobs: {AT} both ranks because t.py:2 had already "
    f"started a backend: call initialize() {WHY}"
)
OF_ONE = OF_BOTH.replace(
    "these are 2 separate single-process jobs",
    "rank 1 is a single-process job, separate from the others",
).replace("both ranks", "it")


def refused(*ranks: int, why: hook.NotJoined = LATE) -> RunState:
    state = calls("2", "2")
    for rank in ranks:
        say(state, rank, why, 2.0)
    return state


@pytest.mark.parametrize(("ranks", "why", "line"), [
    ((0, 1), LATE, OF_BOTH),
    ((1,), LATE, OF_ONE),
    ((), LATE, ""),
    ((0, 1), hook.NotJoined("ValueError", "x" * 200), OF_BOTH.partition("because")[0] + f"with ValueError: {'x' * 93}..."),
])  # fmt: skip
def test_ranks_that_go_on_alone(ranks: tuple[int, ...], why: hook.NotJoined, line: str) -> None:
    """They are told of after a while, at the end, and beside what fails because of that."""
    state = refused(*ranks, why=why)
    separate = SeparateRanks(state)
    separate.use_jax(2.0)
    assert separate.expire(11.0) is None
    assert separate.expire(12.0) == (line or None)
    assert [run.place.is_through for run in state.ranks.values()] == [n in ranks for n in (0, 1)]
    state.exited(end_of(1, 0), 13.0)
    state.exited(end_of(0, 0), 13.0)
    assert warnings(state) == ([line] if line else [])


def test_a_rank_that_joins_after_all_is_not_alone() -> None:
    state = refused(0, 1)
    for rank in (0, 1):
        say(state, rank, hook.Joining("h:1", 2, rank), 3.0)
        say(state, rank, hook.Joined(rank), 3.0)
        say(state, rank, LATE, 4.0)  # it calls initialize() once more
        state.exited(end_of(rank, 0), 5.0)
    assert warnings(state) == []
    assert {run.membership.turn for run in state.ranks.values()} == {0}


def test_what_fails_in_a_rank_that_is_alone() -> None:
    state = refused(0, 1)
    say(state, 1, failure("AssertionError: 1 process", joined=False), 3.0)
    state.exited(end_of(1, 1), 4.0)
    state.exited(end_of(0, 0), 4.0)
    lines = summarize(state).lines
    assert lines[0] == "rank 1 failed: AssertionError: 1 process"
    assert OF_ONE.replace("rank 1", "rank 0") in lines


def test_the_exception_that_nobody_catches_is_no_news() -> None:
    state = refused(1)
    say(state, 1, failure(f"RuntimeError: {LATE.summary}", joined=False), 3.0)
    state.exited(end_of(1, 1), 4.0)
    state.exited(end_of(0, -signal.SIGTERM, (signal.SIGTERM,)), 5.0)
    assert not any("single-process" in line for line in summarize(state).lines)


@pytest.mark.parametrize(("what", "told_at"), [
    ("compiles", 15.0),
    ("prints", 35.0),
    ("prints once", None),
    ("prints without jax", None),
    ("joins", None),
    ("joins late", None),
])  # fmt: skip
def test_ranks_that_use_jax_without_having_joined(what: str, told_at: float | None) -> None:
    """Looked at ever more seldom; what has printed for less than 10 s may yet join."""
    state = run_of(3)
    separate, told = SeparateRanks(state), []
    separate.use_jax(5.0)
    for at in range(5, 200):
        for rank in (0, 1):
            if at == 5 and "without" not in what:
                say(state, rank, hook.ImportedJax("1", "1", "3"), at)
            if at == 5 and what == "compiles":
                say(state, rank, hook.Compiling("jit_f", "a.py:1", "cpu"), at)
            if at == 6 or (at > 6 and what != "prints once"):
                state.printed(rank, at)
        if (what, at) in (("joins", 6), ("joins late", 14)):
            say(state, 2, hook.Joining("h:1", 3, 2), at)
        if line := separate.expire(float(at)):
            assert line.startswith(
                "no rank has called jax.distributed.initialize(): these run as 3 "
            )
            told.append(at)
            separate.use_jax(at)  # and never again
    assert told == ([] if told_at is None else [told_at])
    assert SEPARATE_S == 10.0

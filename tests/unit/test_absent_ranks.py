"""Ranks that others wait for in vain: reported once, whichever comes first."""

from collections.abc import Sequence

import pytest
from records import end_of, run_of

from mcjax_launch.kernel.wire.hook_messages import Joined, Joining, Leaving, Left, NotJoined
from mcjax_launch.kernel.wire.messages import Exited, FromHook
from mcjax_launch.runs import hook_events
from mcjax_launch.runs.rank_run import RankRun
from mcjax_launch.runs.state import RunState
from mcjax_launch.runs.stop_reasons import StopReason
from mcjax_launch.watchdog.joining import AbsentRanks

Event = FromHook | Exited


def joining(
    rank: int, count: int | None = 3, address: str = "h:1", where: str = "", of: int | None = None
) -> FromHook:
    """A rank calls initialize(), as this process or as another."""
    process_id = rank if of is None else of
    return FromHook(rank, Joining(address, count, process_id, where))


def ended(rank: int) -> Exited:
    return end_of(rank, 0)


JOINED = FromHook(1, Joined(1))
LEAVING = FromHook(1, Leaving())

FAILED = FromHook(1, NotJoined("RuntimeError", "too late"))
AFTER_FAILURE = (
    "rank 1 exited with 0 after its call of initialize() had failed, where ranks 0,2 wait for it"
)
NEVER_CAME = "rank 1 exited with 0 without calling initialize(), where"
LATER = f"{NEVER_CAME} others wait for it; the job ends when all of them do"
TWO_GONE = "ranks 1-2 exited with 0 without calling initialize(), where rank 0 waits for them"
NOW = f"{NEVER_CAME} ranks 0,2 wait for it"

#: What happens, the lines on it, and the reason to end the job.
CASES: dict[str, tuple[list[Event], list[str], str | None]] = {
    "it ends before the others wait": ([ended(1), joining(0), joining(2)], [LATER], NOW),
    "it ends when one waits": ([joining(0), ended(1), joining(2)], [LATER], NOW),
    "it ends last": ([joining(0), joining(2), ended(1)], [], NOW),
    "another does not wait": ([joining(0), ended(1)], [LATER], None),
    "two are gone": ([ended(1), ended(2), joining(0)], [], TWO_GONE),
    "nobody waits": ([ended(1), ended(0), ended(2)], [], None),
    "others wait for two only": ([joining(0, 2), ended(1), joining(2, 2, of=1)], [], None),
    "its call failed": ([joining(1), FAILED, joining(0), joining(2), ended(1)], [], AFTER_FAILURE),
    "its call failed, and another waits": ([joining(1), FAILED, ended(1), joining(0)], [f"{AFTER_FAILURE.partition(' ranks')[0]} others wait for it; the job ends when all of them do"], None),
    "its second call did not fail": ([joining(1), FAILED, joining(1), JOINED, joining(0), LEAVING, ended(1)], [], None),
    "it came": ([joining(1), JOINED, joining(0), LEAVING, ended(1)], [], None),
    "it is the last of all": ([joining(1), JOINED, ended(0), ended(2), ended(1)], [], None),
}  # fmt: skip

TOO_MANY = "rank 0 called initialize() at t.py:3 with num_processes=4, but the job has 3"
CALLED = "called initialize() with"
TWICE = f"rank 2 {CALLED} process_id=0, the same as rank 0; its own is 2"

#: Calls, and why they end the job; "" where they do not.
HOPELESS: dict[str, tuple[list[Event], str]] = {
    "too many": ([joining(0, 4, where="t.py:3")], TOO_MANY),
    "too many, at a local address of the program's own": ([joining(0, 4, "localhost:2", where="t.py:3")], TOO_MANY),
    "too few, of those that are there": ([joining(0, 2), joining(1, 2)], ""),
    "too few": ([joining(0, 2), joining(2, 2)], f"rank 2 {CALLED} process_id=2 and num_processes=2, but the job has 3"),
    "one has another number": ([joining(0, 2), joining(1)], f"rank 0 {CALLED} num_processes=2, but the job has 3"),
    "one process id twice": ([joining(0), joining(2, of=0)], TWICE),
    "one process id twice, and its own is the second": ([joining(2, of=0), joining(0)], TWICE),
    "a process id that is too big": ([joining(1, of=3)], f"rank 1 {CALLED} process_id=3, which is not one of 0 to 2"),
    "one that is below 0": ([joining(1, of=-1)], f"rank 1 {CALLED} process_id=-1, which is not one of 0 to 2"),
    "two jobs": ([joining(0, 1), joining(2, 1, "b:2", of=0)], ""),
    "jobs of one process each": ([joining(0, 1), joining(1, 1, "h:2", of=0)], ""),
    "at one port of a host": ([joining(1, 1, of=0), joining(2, 1, where="t.py:3", of=0)], "rank 2 called initialize() at t.py:3 with num_processes=1, but the job has 3"),
    "at one port of two hosts": ([joining(0, 1), joining(1, 1, of=0)], ""),
    "one after the other at one port": ([joining(1, 1, of=0), ended(1), joining(2, 1, of=0)], ""),
    "one loopback address on two hosts": ([joining(0, 2, "127.0.0.1:1"), joining(2, 2, "127.0.0.1:1", of=0)], ""),
    "one after the other": ([joining(1), JOINED, joining(0, of=1)], ""),
    "no numbers": ([joining(0), joining(1, None), FromHook(2, Joining("h:1", None, None))], ""),
}  # fmt: skip


def found(events: Sequence[Event], state: RunState) -> tuple[list[str], str | None]:
    """The lines on what happens, and the reason to end the job for it."""
    absent_ranks = AbsentRanks()
    lines: list[str] = []
    for event in events:
        stop = None
        if isinstance(event, Exited):
            state.exited(event, 1.0)
            stop = absent_ranks.ended(state, event.rank)
        else:
            hook_events.take(state, event, 1.0)
            if isinstance(event.message, Joining):
                stop = absent_ranks.called(state, event.rank)
        if stop is not None:
            assert (stop.status, stop.final, len(stop.details)) == (1, True, 1)
            assert stop.message.replace("ranks", "rank").startswith(f"rank {stop.rank}")
            return lines, stop.message
        lines += absent_ranks.notes(state)
    return lines, None


@pytest.fixture
def state() -> RunState:
    return run_of(3, "g", "h", "h")


@pytest.mark.parametrize("name", CASES)
def test_ranks_that_never_came(state: RunState, name: str) -> None:
    events, lines, reason = CASES[name]
    assert found(events, state) == (lines, reason)


@pytest.mark.parametrize("name", HOPELESS)
def test_hopeless_calls(state: RunState, name: str) -> None:
    events, reason = HOPELESS[name]
    assert found(events, state) == ([], reason or None)


def test_too_many_at_an_address_where_others_may_come(state: RunState) -> None:
    calls = [joining(0, 4, "b:2", where="t.py:3"), joining(1, 4, "b:2")]
    waits = "which waits for the rest of them (--start-timeout ends such a wait)"
    assert found(calls, state) == ([f"{TOO_MANY}, {waits}"], None)


def test_left_without_leaving(state: RunState) -> None:
    (line,), reason = found([joining(1), JOINED, ended(1)], state)
    assert line.startswith("rank 1 exited with 0 without leaving the job (as os._exit() does)")
    assert reason is None


def test_nothing_is_missed_where_the_job_ends_anyway(state: RunState) -> None:
    state.stopped(StopReason("enough", 1), 0.5)
    assert found([ended(1), joining(0), joining(2, of=0)], state) == ([], None)


def test_who_only_waits(state: RunState) -> None:
    """Those in initialize(), and in the exit barrier, where one has failed that they wait for."""
    assert not state.only_waits
    found([joining(1), JOINED, joining(0)], state)
    state.exited(end_of(2, 3), 1.0)
    assert not state.only_waits
    hook_events.take(state, LEAVING, 1.0)
    assert state.only_waits
    hook_events.take(state, FromHook(1, Left()), 1.0)
    assert not state.only_waits


def test_what_a_call_costs_does_not_grow_with_the_ranks() -> None:
    """A thousand calls, one rank gone and one asleep: few ranks are looked at more than once."""
    count, looks = 1000, 0

    class Watched(RankRun):
        def __getattribute__(self, name: str) -> object:
            nonlocal looks
            looks += name == "membership"
            return super().__getattribute__(name)

    state, absent_ranks = run_of(count), AbsentRanks()
    state.ranks = {rank: Watched(rank, "h") for rank in range(count)}
    state.exited(ended(1), 1.0)
    assert absent_ranks.ended(state, 1) is None
    for rank in range(2, count - 1):
        hook_events.take(state, joining(rank, count), 1.0)
        assert absent_ranks.called(state, rank) is None
        assert len(absent_ranks.notes(state)) == (rank == 2)
    assert looks < 40 * count

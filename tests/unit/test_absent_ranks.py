"""Ranks that others wait for in vain: reported once, whichever comes first."""

import pytest
from records import end_of

from mcjax_launch.protocol.hook_messages import Joined, Joining, Leaving
from mcjax_launch.protocol.messages import Exited, FromHook
from mcjax_launch.run import hook_events
from mcjax_launch.run.state import RunState
from mcjax_launch.run.stop_reasons import Stop
from mcjax_launch.watchdog.absent_ranks import AbsentRanks

Event = FromHook | Exited


def joining(
    rank: int, count: int | None = 3, address: str = "a:1", where: str = "", of: int | None = None
) -> FromHook:
    """A rank calls initialize(), as this process or as another."""
    process_id = rank if of is None else of
    return FromHook(rank, Joining(address, count, process_id, where))


def ended(rank: int) -> Exited:
    return end_of(rank, 0)


JOINED = FromHook(1, Joined(1))
LEAVING = FromHook(1, Leaving())

NEVER_CAME = [
    "rank 1 exited with 0 without calling initialize(); the other ranks are waiting for it there "
    "(Ctrl-C ends the job, --start-timeout does so by itself)"
]

CASES: dict[str, tuple[list[Event], list[str]]] = {
    "it ends before the others wait": ([ended(1), joining(0), joining(2)], NEVER_CAME),
    "it ends when one waits": ([joining(0), ended(1), joining(2)], NEVER_CAME),
    "it ends last": ([joining(0), joining(2), ended(1)], NEVER_CAME),
    "nobody waits": ([ended(1), ended(0), ended(2)], []),
    "others wait for two only": ([joining(0, 2), ended(1), joining(2, 2)], []),
    "it came": ([joining(1), JOINED, joining(0), LEAVING, ended(1)], []),
    "it is the last of all": ([joining(1), JOINED, ended(0), ended(2), ended(1)], []),
}


HOPELESS: dict[str, tuple[list[Event], list[str]]] = {
    "too many": (
        [joining(0, 4, where="t.py:3"), joining(1, 4)],
        ["rank 0 called initialize() at t.py:3 with num_processes=4, but the job has 3"],
    ),
    "one number twice": (
        [joining(0), joining(2, of=0)],
        ["rank 2 called initialize() with process_id=0, the same as rank 0; its own is 2"],
    ),
    "two jobs": ([joining(0, 1), joining(2, 1, "b:2", of=0)], []),
    "more than numbers": (
        [joining(0), joining(1, None)],
        [],
    ),
}


def notes(events: list[Event], state: RunState) -> list[str]:
    absent_ranks, lines = AbsentRanks(), []
    for event in events:
        if isinstance(event, Exited):
            state.exited(event, 1.0)
        else:
            hook_events.take(state, event, 1.0)
        lines += absent_ranks.notes(state)
    return lines


@pytest.fixture
def state() -> RunState:
    state = RunState(num_processes=3)
    state.planned("job", "a:1", dict.fromkeys(range(3), "h"), None)
    return state


@pytest.mark.parametrize("name", CASES)
def test_reported_once(state: RunState, name: str) -> None:
    events, lines = CASES[name]
    assert notes(events, state) == lines


@pytest.mark.parametrize("name", HOPELESS)
def test_hopeless_calls(state: RunState, name: str) -> None:
    events, lines = HOPELESS[name]
    assert notes(events, state) == lines


def test_left_without_leaving(state: RunState) -> None:
    lines = notes([joining(1), JOINED, ended(1)], state)
    assert len(lines) == 1
    assert lines[0].startswith("rank 1 exited with 0 without leaving the job (as os._exit() does)")


def test_nothing_is_missed_where_the_job_ends_anyway(state: RunState) -> None:
    state.stopped(Stop("enough", 1), 0.5)
    assert notes([ended(1), joining(0)], state) == []

"""The agent's decisions, as histories: events in, effects out."""

import signal
from typing import Any

import pytest

from mcjax_launch.agent.supervisor import (
    LINGER_S,
    UNKILLABLE_S,
    HostEffect,
    Kill,
    KillRank,
    Leave,
    RecordLeftovers,
    ReportUnkilled,
    SignalRanks,
    Supervisor,
)
from mcjax_launch.wire.messages import ALIKE_S

TERM, INT, KILL = signal.SIGTERM, signal.SIGINT, signal.SIGKILL
DONE: list[HostEffect] = [Leave(unkillable=False)]

# Each step: a method of Supervisor, its arguments, what it returns. Two ranks, a grace of 2 s.
Histories = dict[str, list[tuple[str, tuple[Any, ...], list[HostEffect] | None]]]
ENDING: Histories = {
    "all end well": [
        ("on_rank_exit", (0, 0, 1.0), []),
        ("on_rank_exit", (1, 0, 1.0), []),
        ("on_last_child_end", (), DONE),
    ],
    "stragglers of a good end are told, then killed": [
        ("on_rank_exit", (0, 0, 1.0), []),
        ("on_rank_exit", (1, 0, 1.0), []),
        ("expire", (1.0 + LINGER_S - 0.01,), []),
        ("expire", (1.0 + LINGER_S,), [RecordLeftovers(), SignalRanks(TERM)]),
        ("on_child_end", (), []),
        ("expire", (3.0 + LINGER_S,), [Kill()]),
        ("on_child_end", (), [Kill()]),
        ("on_last_child_end", (), DONE),
    ],
    "a failure ends the others, and a second changes nothing": [
        ("on_rank_exit", (1, 3, 1.0), [SignalRanks(TERM)]),
        ("on_rank_exit", (0, 4, 2.0), []),
        ("expire", (2.99,), []),
        ("expire", (3.0,), [Kill()]),
        ("on_last_child_end", (), DONE),
    ],
    "who is deaf is killed after the grace, and left at last if it is unkillable": [
        ("on_rank_exit", (1, 3, 1.0), [SignalRanks(TERM)]),
        ("expire", (3.0,), [Kill()]),
        ("on_rank_exit", (0, -9, 3.1), []),
        ("expire", (3.0 + UNKILLABLE_S,), [Leave(unkillable=True)]),
    ],
    "before another attempt what dies slowly is waited for": [
        ("stop", (TERM, 2.0, 1.0, 60.0), [SignalRanks(TERM)]),
        ("expire", (3.0,), [Kill()]),
        ("expire", (3.0 + UNKILLABLE_S,), [ReportUnkilled()]),
        ("expire", (62.0,), []),
        ("expire", (63.0,), [Leave(unkillable=True)]),
    ],
    "a failure of its own, and then the launcher's word": [
        ("on_rank_exit", (1, 3, 1.0), [SignalRanks(TERM)]),
        ("expire", (3.0,), [Kill()]),
        ("stop", (TERM, 2.0, 3.5, 60.0), []),
        ("expire", (3.0 + UNKILLABLE_S,), [ReportUnkilled()]),
        ("on_last_child_end", (), DONE),
    ],
    "a user who does not want another attempt": [
        ("stop", (TERM, 2.0, 1.0, 60.0), [SignalRanks(TERM)]),
        ("expire", (3.0,), [Kill()]),
        ("expire", (3.0 + UNKILLABLE_S,), [ReportUnkilled()]),
        ("stop", (INT, 0.0, 20.0), []),
        ("expire", (20.0,), [Leave(unkillable=True)]),
    ],
    "somebody ends the agent, which does not wait for the memory of GPUs then": [
        ("stop", (TERM, 2.0, 1.0, 60.0), [SignalRanks(TERM)]),
        ("on_agent_signal", (1.5,), [Kill()]),
        ("expire", (1.5 + UNKILLABLE_S,), [Leave(unkillable=True)]),
    ],
    "a program that failed but lives is spared and then killed": [
        ("on_early_failure", (1, 1.0), [SignalRanks(TERM, frozenset([1]))]),
        ("on_early_failure", (0, 1.1), []),
        ("expire", (3.0,), [Kill()]),
    ],
    "a failure told after the end is none": [
        ("on_rank_exit", (1, 0, 1.0), []),
        ("on_early_failure", (1, 1.1), []),
    ],
    "a stop with its own signal and grace": [
        ("stop", (INT, 5.0, 1.0), [SignalRanks(INT)]),
        ("on_rank_exit", (0, 0, 1.5), []),
        ("on_rank_exit", (1, -2, 1.5), [SignalRanks(TERM)]),
        ("on_last_child_end", (), DONE),
    ],
    "a second stop means now": [
        ("stop", (TERM, 30.0, 1.0), [SignalRanks(TERM)]),
        ("stop", (TERM, 0.0, 2.0), [Kill()]),
    ],
    "a later stop can only hasten": [
        ("on_rank_exit", (1, 3, 1.0), [SignalRanks(TERM)]),
        ("stop", (TERM, 30.0, 1.5), []),
        ("expire", (3.0,), [Kill()]),
    ],
    "without the launcher": [
        ("abandon", (1.0,), [SignalRanks(TERM)]),
        ("expire", (3.0,), [Kill()]),
    ],
}


#: The same where the others outlive a rank that fails.
GOING_ON: Histories = {
    "what it has left gets a moment, and so do the stragglers of the last": [
        ("on_rank_exit", (1, 3, 1.0), []),
        ("expire", (1.0 + LINGER_S,), [KillRank(1)]),
        ("on_rank_exit", (0, 0, 5.0), []),
        ("expire", (5.0 + LINGER_S,), [RecordLeftovers(), SignalRanks(TERM)]),
        ("on_last_child_end", (), DONE),
    ],
    "one that has failed and does not end is killed after the grace": [
        ("on_early_failure", (1, 1.0), []),
        ("on_early_failure", (1, 2.0), []),
        ("expire", (2.9,), []),
        ("expire", (3.0,), [KillRank(1)]),
        ("on_rank_exit", (1, -9, 3.1), []),
        ("expire", (3.1 + LINGER_S,), [KillRank(1)]),
    ],
    "a stop spares who has failed, for it ends by itself": [
        ("on_early_failure", (1, 1.0), []),
        ("stop", (TERM, 2.0, 1.1), [SignalRanks(TERM, frozenset([1]))]),
        ("expire", (3.1,), [Kill()]),
    ],
}


HISTORIES = {"stop": ENDING, "continue": GOING_ON}


@pytest.mark.parametrize(
    ("on_failure", "name"), [(way, name) for way, found in HISTORIES.items() for name in found]
)
def test_supervisor_decides_what_follows(on_failure: str, name: str) -> None:
    group = Supervisor(2.0, on_failure=on_failure)
    for rank in range(2):
        group.on_rank_start(rank)
    for method, arguments, effects in HISTORIES[on_failure][name]:
        assert getattr(group, method)(*arguments) == effects, (method, arguments)


def test_signals_sent_to_each_rank_are_recorded() -> None:
    group = Supervisor(2.0)
    for rank in range(3):
        group.on_rank_start(rank)
    group.on_early_failure(1, 1.0)
    group.expire(3.0)
    assert group.sent == {0: [TERM, KILL], 1: [KILL], 2: [TERM, KILL]}
    group = Supervisor(2.0, on_failure="continue")
    for rank in range(3):
        group.on_rank_start(rank)
    group.on_early_failure(1, 1.0)
    group.on_rank_exit(2, 3, 1.0)
    assert group.expire(3.0) == [KillRank(1), KillRank(2)]
    assert group.sent == {0: [], 1: [KILL], 2: []}


def test_stop_before_the_start_ends_at_once() -> None:
    group = Supervisor(2.0)
    assert group.on_last_child_end() == []  # a helper of the agent's own has ended
    assert group.stop(KILL, 0.0, 1.0) == [Kill()]
    assert group.on_last_child_end() == DONE


def test_deadline_is_the_next_thing_to_happen() -> None:
    group = Supervisor(2.0)
    group.on_rank_start(0)
    assert group.deadline is None
    group.stop(TERM, 30.0, 1.0)
    assert group.deadline == 31.0
    group.stop(TERM, 2.0, 1.0)
    assert group.deadline == 3.0
    group.on_last_child_end()
    assert group.deadline is None
    for end, grace_s in (("on_agent_signal", 30.0), ("abandon", 2.0)):
        group = Supervisor(2.0, term_grace_s=30.0)
        group.on_rank_start(0)
        assert getattr(group, end)(1.0) == [SignalRanks(TERM)]
        assert group.deadline == 1.0 + grace_s


def test_an_exiting_rank_is_not_blamed_on_our_signal() -> None:
    ranks = Supervisor(2.0, ending=lambda: [1])
    for rank in range(3):
        ranks.on_rank_start(rank)
    assert ranks.on_early_failure(0, 0.0) == [SignalRanks(signal.SIGTERM, frozenset([0]))]
    assert ranks.sent == {0: [], 1: [], 2: [signal.SIGTERM]}
    assert ranks.expire(2.0) == [Kill()]
    assert ranks.sent == {0: [KILL], 1: [], 2: [signal.SIGTERM, KILL]}


def test_other_ranks_get_a_moment_to_fail_alike() -> None:
    three = Supervisor(2.0)
    for rank in range(3):
        three.on_rank_start(rank)
    assert three.on_rank_exit(0, 2, 10.0, alone=False) == []
    assert three.stopping and three.deadline == 10.0 + ALIKE_S
    assert three.on_rank_exit(1, 2, 10.1, alone=False) == []  # the moment is not longer for that
    assert three.stop(signal.SIGTERM, 2.0, 10.2, settles=True) == []  # the launcher knows by now
    assert three.expire(10.0 + ALIKE_S) == [SignalRanks(signal.SIGTERM)]
    assert (three.sent[1], three.sent[2]) == ([], [signal.SIGTERM])
    assert three.deadline == 12.0 + ALIKE_S


@pytest.mark.parametrize("how", ["signal", "user", "all", "none is left that may"])
def test_moment_for_equal_failures_is_cut_short(how: str) -> None:
    two = Supervisor(2.0)
    for rank in range(2):
        two.on_rank_start(rank)
    assert two.stop(signal.SIGTERM, 2.0, 10.0, settles=True) == []
    if how == "signal":
        assert two.on_rank_exit(0, -9, 10.1, alone=False) == [SignalRanks(signal.SIGTERM)]
    elif how == "none is left that may":
        assert two.on_rank_exit(0, 2, 10.1, alone=True) == [SignalRanks(signal.SIGTERM)]
    elif how == "user":
        assert two.stop(signal.SIGINT, 5.0, 10.1) == [SignalRanks(signal.SIGINT)]
    else:
        for rank in range(2):
            assert two.on_rank_exit(rank, 2, 10.1, alone=False) == []
        assert two.deadline == 10.1 + LINGER_S
        assert two.on_last_child_end() == [Leave(unkillable=False)]

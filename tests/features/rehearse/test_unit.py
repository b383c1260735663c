"""When a rehearsal is due, and what is said to have come of it."""

import pytest
from records import run_of

from mcjax_launch.diagnosis.summary import summarize
from mcjax_launch.features.rehearse.launcher import (
    Rehearsal,
    describe_outcome,
    find_join_time,
    parse,
)
from mcjax_launch.kernel.wire.hook_messages import Joined, Joining
from mcjax_launch.kernel.wire.messages import Exited, FromHook
from mcjax_launch.options.kinds import parse_rehearsal
from mcjax_launch.runs import hook_events, stop_reasons
from mcjax_launch.runs.state import RunState

TERM = Rehearsal("term", "", 2.0)


def test_rehearsals_are_parsed() -> None:
    known = {
        "kill:1@30s": (Rehearsal("kill", "1", 30.0), "kill:1 at 30 s"),
        "term@1m": (Rehearsal("term", "", 60.0), "term at 60 s"),
        "stop:02@0.5": (Rehearsal("stop", "2", 0.5), "stop:2 at 0.5 s"),
        "lose:u@h:22@5": (Rehearsal("lose", "u@h:22", 5.0), "lose:u@h:22 at 5 s"),
    }
    found = {text: parse(parse_rehearsal(text)) for text in known}
    assert {text: (value, str(value)) for text, value in found.items()} == known
    assert all(parse_rehearsal(parse_rehearsal(text)) == parse_rehearsal(text) for text in known)


@pytest.mark.parametrize(
    "text", ["term", "kill@5s", "kill:@5s", "kill:a@5s", "term:1@5s", "burn:1@5s", "kill:1@soon"]
)
def test_malformed_rehearsals_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is"):
        parse_rehearsal(text)


def begun(ranks: int = 2, *, hooks: bool = True) -> RunState:
    state = run_of(ranks, "a", "b", expects_hooks=hooks)
    for rank in range(ranks):
        state.record_start(rank, 7, 1.0 + rank)
    return state


def test_rehearsal_time_counts_from_the_last_join() -> None:
    state = begun()
    for rank in range(2):
        assert find_join_time(state) is None
        hook_events.apply(state, FromHook(rank, Joining("", 2, rank)), 3.0)
        hook_events.apply(state, FromHook(rank, Joined(rank)), 5.0 + rank)
    assert find_join_time(state) == 6.0


@pytest.mark.parametrize("state", [begun(hooks=False), begun(1)], ids=["no Python", "one rank"])
def test_rehearsal_time_counts_from_the_start_without_joins(state: RunState) -> None:
    assert find_join_time(state) == float(len(state.ranks))


@pytest.mark.parametrize(
    ("ends", "said"),
    [
        ({0: (0, ()), 1: (0, ())}, "both ranks left with 0 within 2 s"),
        (
            {0: (0, ()), 1: (-9, (15, 9))},
            "rank 1: killed after the grace; rank 0 left with 0 within 1 s",
        ),
        ({0: (-15, (15,)), 1: (-15, (15,))}, "ranks 0-1: ended by SIGTERM"),
        (
            {0: (3, (15,)), 1: (0, ())},
            "rank 0: exited with status 3; rank 1 left with 0 within 2 s",
        ),
    ],
)
def test_outcome_of_a_rehearsed_term_is_described(
    ends: dict[int, tuple[int, tuple[int, ...]]], said: str
) -> None:
    state = begun()
    state.record_stop(stop_reasons.interrupted(15), 10.0)
    for rank, (status, sent) in ends.items():
        state.record_exit(Exited(rank, status, sent, None, 0.0, 0), 11.0 + rank)
    assert describe_outcome(TERM, 10.0, state, summarize(state), 20.0) == f"term at 2 s: {said}"


def test_outcome_of_a_rehearsed_kill_is_described() -> None:
    kill = Rehearsal("kill", "1", 2.0)
    state = begun()
    state.record_exit(Exited(1, -9, (), "", 0.0, 0), 10.0)
    state.record_exit(Exited(0, -15, (15,), "", 0.0, 0), 11.0)
    ended = "kill:1 at 2 s: the job ended after 1 s, with status 137: rank 1 failed: killed by "
    assert describe_outcome(kill, 10.0, state, summarize(state), 11.0).startswith(ended)


def test_outcome_of_a_survived_kill_is_described() -> None:
    kill = Rehearsal("kill", "1", 2.0)
    state = begun()
    state.survives = True
    state.record_exit(Exited(1, -9, (), "", 0.0, 0), 10.0)
    state.record_exit(Exited(0, 0, (), "", 0.0, 0), 14.0)
    alone = "kill:1 at 2 s: the other rank ended with 0; the job ended after 4 s, with status 137"
    assert describe_outcome(kill, 10.0, state, summarize(state), 14.0) == alone
    state.restart_rank(1, 11.0)
    state.record_start(1, 8, 12.0)
    state.record_exit(Exited(1, 0, (), "", 0.0, 0), 15.0)
    back = "kill:1 at 2 s: rank 1 was back after 2 s; the job ended after 5 s, with status 0"
    assert describe_outcome(kill, 10.0, state, summarize(state), 15.0) == back

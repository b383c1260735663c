"""Which ranks the processes of programs are, and what waits until that is known."""

import pytest
from mcjax_launch.features.verify_spmd.watch import Release, SpmdWatch
from records import end_of, run_of, say

from mcjax_launch.diagnosis.spmd import describe_divergence
from mcjax_launch.runs import hook_events
from mcjax_launch.runs.state import RunState
from mcjax_launch.runs.stop_reasons import interrupted
from mcjax_launch.wire import hook_messages as hook
from mcjax_launch.wire.messages import FromHook

RANKS = range(4)


def program(name: str, processes: tuple[int, ...] | None = None) -> hook.Program:
    """One that holds its ranks, on the TPUs of these processes."""
    return hook.Program(f"jit_{name}", name, processes, (), "a.py:1", processes, True, "tpu")


@pytest.fixture
def state() -> RunState:
    """Four ranks that have joined, each as the process of its number."""
    state = run_of(4, joins=True)
    for rank in RANKS:
        say(state, rank, hook.ProcessNumber("cpu", rank), 2.0)
    return state


def number(state: RunState, *ranks: int) -> None:
    """The TPUs of these ranks have numbers, each one more than the rank."""
    for rank in ranks:
        say(state, rank, hook.ProcessNumber("tpu", (rank + 1) % 4), 3.0)


def reach(state: RunState, rank: int, what: hook.Program) -> None:
    say(state, rank, what, 4.0)


def test_programs_are_not_compared_before_all_members_are_known(state: RunState) -> None:
    number(state, 0, 3)
    for rank in (0, 3):
        reach(state, rank, program("step", (0, 1)))
    assert state.pop_released() == {"step": {0, 3}}
    reach(state, 2, program("odd", (2, 3)))
    reach(state, 0, program("all"))  # known, but it came later
    assert state.programs.count == 2
    number(state, 1)
    assert state.programs.count == 2
    number(state, 2)
    assert state.programs.count == 4
    reach(state, 1, program("even", (2, 3)))
    [line, *_] = describe_divergence(state.programs)
    assert line == "program #1: rank 1 a.py:1 jit(even) · rank 2 a.py:1 jit(odd)"


def test_an_end_counts_after_what_was_run_before(state: RunState) -> None:
    for rank in (0, 3):
        reach(state, rank, program("step", (0, 1)))
        say(state, rank, hook.Leaving(), 5.0)
    number(state, *RANKS)
    assert state.programs.count == 2
    assert state.programs.divergence is None


def test_ended_rank_is_forgotten(state: RunState) -> None:
    number(state, 0, 1, 2)
    reach(state, 2, program("step", (0, 3)))
    assert state.programs.count == 0
    state.record_exit(end_of(3, 0), 5.0)
    assert state.programs.count == 1


def test_unanswered_comparison_is_released_after_a_while(state: RunState) -> None:
    watch = SpmdWatch(state)
    number(state, 0, 1)
    reach(state, 2, program("step", (0, 3)))
    assert watch.deadline == 14.0
    assert watch.expire(13.0) == []
    assert state.programs.count == 0
    # As if initialize() had said it; so rank 2 has nothing to do with it.
    assert watch.expire(14.0) == [Release("step", frozenset({2}))]


def test_no_rank_is_held_at_the_end(state: RunState) -> None:
    reach(state, 2, program("step", (0, 3)))
    assert state.pop_released() == {}
    state.record_stop(interrupted(2), 5.0)
    assert state.pop_released() == {"step": {2}}


def test_consecutive_programs_of_a_rank_are_separate_processes(state: RunState) -> None:
    number(state, *RANKS)
    for rank in RANKS:
        say(state, rank, hook.Joining("h:1", 4, rank), 6.0)
        say(state, rank, hook.Joined(rank), 6.0)
    reach(state, 2, program("step", (0, 1)))
    assert state.programs.count == 0
    for rank in RANKS:
        say(state, rank, hook.ProcessNumber("tpu", 3 - rank), 7.0)
    reach(state, 3, program("step", (0, 1)))
    assert state.pop_released() == {"step": {2, 3}}


def test_the_coordination_service_has_the_numbers_of_initialize(state: RunState) -> None:
    number(state, *RANKS)
    run = state.find_rank(3)
    assert run is not None and run.process_id == 3


def test_the_slices_in_a_failure_are_those_of_the_ranks(state: RunState) -> None:
    number(state, *RANKS)
    failed = hook.Failed(1, joined=True, slices=(0, 0, 1, 1))
    hook_events.apply(state, FromHook(1, failed), 8.0)
    failure = state.ranks[1].failure
    assert failure is not None and failure.slices == (0, 1, 1, 0)

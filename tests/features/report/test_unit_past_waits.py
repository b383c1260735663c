"""Who waited for whom."""

from records import end_of, run_of, say
from told import launch

from mcjax_launch.features.report.run_record import EXIT, INITIALIZE, collect_waits
from mcjax_launch.journal.state import RunState
from mcjax_launch.wire.hook_messages import Joined, Joining, Leaving


def joining(*times: float) -> RunState:
    """Three ranks, of which some call initialize() at these times."""
    state = run_of(3)
    for rank, at in enumerate(times):
        say(state, rank, Joining("h:1", 3, rank, "train.py:3"), at)
    return state


def test_waits_of_a_run_are_recorded() -> None:
    state = joining(2.0, 2.5, 7.0)
    for rank in range(3):
        say(state, rank, Joined(rank), 7.1)
    for rank, at in enumerate((9.5, 12.0, 9.6)):
        say(state, rank, Leaving(), at)
        state.on_exited(end_of(rank, 0), 12.1)
    found = collect_waits(state, 13.0)
    assert [wait.place for wait in found] == [INITIALIZE, EXIT]
    assert [wait.late for wait in found] == [(2,), (1,)]
    assert [wait.where for wait in found] == ["train.py:3", ""]
    assert [wait.until for wait in found] == [7.0, 12.0]


def test_several_ranks_may_be_late() -> None:
    [wait] = collect_waits(joining(1.0, 6.0, 6.3), 9.0)
    assert (wait.arrived, wait.late) == (((0, 1.0), (1, 6.0), (2, 6.3)), (1, 2))


def test_short_wait_is_not_recorded() -> None:
    assert collect_waits(joining(1.0, 1.02, 1.05), 9.0) == []


def test_program_that_ranks_have_not_begun_is_a_wait() -> None:
    state = joining(2.0, 3.0, 4.0)
    launch(state, 2, 1, at=9.0)
    [_, wait] = collect_waits(state, 60.0)
    assert (wait.arrived, wait.late, wait.until) == (((2, 9.0),), (0, 1), 60.0)
    assert len(collect_waits(state, 9.0)) == 1


def test_rank_that_never_joins_is_late_until_the_end() -> None:
    [wait] = collect_waits(joining(2.0, 2.0), 60.0)
    assert (wait.late, wait.until) == ((2,), 60.0)


def test_ranks_without_jax_have_no_waits() -> None:
    state = joining()
    for rank in range(3):
        state.on_exited(end_of(rank, 0), 10.0 * rank)
    assert collect_waits(state, 60.0) == []

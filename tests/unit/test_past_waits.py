"""Who waited for whom."""

from records import end_of, run_of, say

from mcjax_launch.runs.past_waits import EXIT, INITIALIZE, PastWaits, collect_waits
from mcjax_launch.runs.sequences import Gap, ProgramName
from mcjax_launch.runs.spmd import RanProgram
from mcjax_launch.wire.hook_messages import Joined, Joining, Leaving
from mcjax_launch.wire.hook_messages import Program as Ran

ALL = frozenset(range(4))


def program(name: str, ranks: frozenset[int] = ALL) -> RanProgram:
    return RanProgram(f"jit_{name}", name, ranks, (), f"{name}.py:1")


def came(waits: PastWaits, what: RanProgram, times: dict[int, float]) -> None:
    for rank, at in times.items():
        waits.record_arrival(rank, what, at)


def test_last_rank_to_arrive_is_late() -> None:
    waits = PastWaits()
    came(waits, program("step"), {0: 1.0, 1: 1.1, 3: 1.2, 2: 5.0})
    (wait,) = waits.list_waits(9.0)
    assert (wait.place, wait.where) == ("jit(step)", "step.py:1")
    assert wait.arrived == ((0, 1.0), (1, 1.1), (3, 1.2), (2, 5.0))
    assert (wait.late, wait.until, wait.seconds) == ((2,), 5.0, 4.0)


def test_several_ranks_may_be_late() -> None:
    waits = PastWaits()
    came(waits, program("step"), {0: 1.0, 1: 1.1, 3: 6.0, 2: 6.5})
    assert [wait.late for wait in waits.list_waits(9.0)] == [(2, 3)]


def test_short_wait_is_not_recorded() -> None:
    waits = PastWaits()
    came(waits, program("step"), {0: 1.0, 1: 1.01, 3: 1.02, 2: 1.05})
    assert waits.list_waits(9.0) == []


def test_ranks_that_never_arrive_are_late() -> None:
    waits = PastWaits()
    came(waits, program("step"), {0: 1.0, 2: 3.0})
    (wait,) = waits.list_waits(9.0)
    assert (wait.late, wait.until) == ((1, 3), 9.0)


def test_only_a_program_of_its_own_mesh_counts() -> None:
    waits = PastWaits()
    came(waits, program("half", frozenset({0, 1})), {2: 1.0, 0: 2.0, 1: 4.0})
    assert [wait.arrived for wait in waits.list_waits(9.0)] == [((0, 2.0), (1, 4.0))]


def test_the_next_program_of_a_rank_begins_anew() -> None:
    waits, step = PastWaits(), program("step", frozenset({0, 1}))
    came(waits, step, {0: 1.0})
    came(waits, step, {0: 5.0, 1: 6.0})
    assert [wait.arrived for wait in waits.list_waits(9.0)] == [((0, 5.0), (1, 6.0))]


def test_only_the_longest_are_kept() -> None:
    waits, both = PastWaits(), frozenset({0, 1})
    for number in range(2000):
        came(waits, program(f"p{number}", both), {0: 0.0, 1: 1.0 + number})
    assert sorted(wait.seconds for wait in waits.list_waits(9e9)) == list(range(1745, 2001))
    wide, waits = frozenset(range(10_000)), PastWaits()
    for number in range(5):
        times = {rank: 0.0 if rank else 1.0 + number for rank in wide}
        came(waits, program(f"p{number}", wide), times)
    assert sorted(wait.seconds for wait in waits.list_waits(9e9)) == [3, 4, 5]
    waits = PastWaits()
    for number in range(5000):  # at which nobody else ever arrives
        pair = frozenset({number, number + 5000})
        came(waits, program(f"p{number}", pair), {number: 1.0})
    assert len(waits.list_waits(9.0)) == 256


def test_waits_of_a_run_are_recorded() -> None:
    state = run_of(3, waits=PastWaits())
    for rank, at in enumerate((2.0, 2.5, 7.0)):
        say(state, rank, Joining("h:1", 3, rank, "train.py:3"), at)
    for rank in range(3):
        say(state, rank, Joined(rank), 7.1)
    for rank, at in enumerate((9.0, 8.0, 8.0)):
        say(state, rank, Ran("jit_step", "f", None, (), "train.py:8"), at)
    for rank, at in enumerate((9.5, 12.0, 9.6)):
        say(state, rank, Leaving(), at)
        state.record_exit(end_of(rank, 0), 12.1)
    found = collect_waits(state.ranks, state.waits, (), 13.0)
    assert [wait.place for wait in found] == [INITIALIZE, "jit(step)", EXIT]
    assert [wait.late for wait in found] == [(2,), (0,), (1,)]
    assert [wait.where for wait in found] == ["train.py:3", "train.py:8", ""]
    assert [wait.until for wait in found] == [7.0, 9.0, 12.0]


def test_program_that_ranks_have_not_begun_is_a_wait_only_if_no_other_is_known() -> None:
    state = run_of(3, waits=PastWaits())
    for rank in range(3):
        say(state, rank, Joining("h:1", 3, rank, "train.py:3"), 2.0 + rank)
    gaps = [Gap(4, ProgramName("jit(step)", "train.py:9"), (2,), (0, 1), since=9.0)]
    initialize, wait = collect_waits(state.ranks, state.waits, gaps, 60.0)
    assert (wait.place, wait.where) == ("jit(step)", "train.py:9")
    assert (wait.arrived, wait.late, wait.until) == (((2, 9.0),), (0, 1), 60.0)
    assert collect_waits(state.ranks, state.waits, gaps, 9.0) == [initialize]
    say(state, 2, Ran("jit_step", "f", None, (), "train.py:8"), 8.0)
    [_, first_run] = collect_waits(state.ranks, state.waits, gaps, 60.0)
    assert first_run.where == "train.py:8"


def test_rank_that_never_joins_is_late_until_the_end() -> None:
    state = run_of(3, waits=PastWaits())
    for rank in range(2):
        say(state, rank, Joining("h:1", 3, rank, "train.py:3"), 2.0)
    (wait,) = collect_waits(state.ranks, state.waits, (), 60.0)
    assert (wait.late, wait.until) == ((2,), 60.0)


def test_ranks_without_jax_have_no_waits() -> None:
    state = run_of(3, waits=PastWaits())
    for rank in range(3):
        state.record_exit(end_of(rank, 0), 10.0 * rank)
    assert collect_waits(state.ranks, state.waits, (), 60.0) == []


def test_continuing_rank_does_not_wait() -> None:
    waits = PastWaits()
    came(waits, program("alone"), {0: 1.0, 1: 1.0})  # as when ranks run different programs
    came(waits, program("next"), {0: 2.0})
    found = {wait.place: wait for wait in waits.list_waits(9.0)}
    assert found["jit(alone)"].arrived == ((1, 1.0),)
    assert found["jit(next)"].arrived == ((0, 2.0),)
    assert [wait.place for wait in waits.list_waits(9.0, left={0})] == ["jit(alone)"]

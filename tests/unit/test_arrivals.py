"""Which ranks come late to programs: histories of arrivals."""

import pytest
from records import run_of
from told import Told

from mcjax_launch.explain.rules import apply_rules
from mcjax_launch.explain.view import Occasion, View
from mcjax_launch.journal.facts import CameLate
from mcjax_launch.journal.sequences import MeshSequence, ProgramName, ProgramSequences

STEP, LOSS = 1, 2
KEY = 0, 7


def play(
    *late_ms: float,
    programs: int = 200,
    step_ms: float = 100,
    every: int = 1,
    uncertain_s: float = 0,
) -> ProgramSequences:
    """Return a history in which each rank comes late by so much to each program."""
    sequences = make(len(late_ms))
    arrivals = sequences.meshes[KEY].arrivals
    arrivals.uncertain_s = uncertain_s
    for number in range(1, programs + 1, every):
        for rank, late in enumerate(late_ms):
            come(sequences, rank, number, number * step_ms + late)
    return sequences


def make(ranks: int) -> ProgramSequences:
    sequences = ProgramSequences()
    sequences.names.record(STEP, ProgramName("jit(step)", "train.py:30"))
    sequences.names.record(LOSS, ProgramName("jit(loss)", "train.py:31"))
    sequences.meshes[KEY] = MeshSequence(range(ranks))
    return sequences


def come(
    sequences: ProgramSequences, rank: int, number: int, at_ms: float, program: int = STEP
) -> None:
    sequences.meshes[KEY].arrivals.add(rank, [(number, program, at_ms / 1e3)])


def say(sequences: ProgramSequences) -> list[str]:
    state = run_of(4)
    state.sequences = sequences
    return [found.words for found in apply_rules(View(state, 0.0), Occasion.OVER)]


def late(rank: int, share: int, by: str, waited: int, runs: str = "199") -> str:
    return (
        f"rank {rank} came late to {share} % of {runs} runs of jit(step) at train.py:30, "
        f"by {by}: the others waited {waited} % of the time for it"
    )


def test_rank_that_comes_late_to_each_program_is_named() -> None:
    assert say(play(0, 0.1, 12, 0.2)) == [late(2, 100, "12 ms", 12)]
    assert say(play(30, 0)) == [late(0, 100, "30 ms", 30)]
    assert say(play(0, 1500, 1, step_ms=2000)) == [late(1, 100, "1.5 s", 75)]


def test_two_late_ranks_of_five_are_named() -> None:
    assert say(play(0, 20, 0, 20, 0)) == [late(1, 100, "20 ms", 20), late(3, 100, "20 ms", 20)]


@pytest.mark.parametrize(
    "history",
    [
        play(0, 0, 0, 0),
        play(0, 0.4, 0, 0, step_ms=60),
        play(0, 0, 5, 0),  # 5 % of the time
        play(0, 0, 12, 0, programs=80),  # too early to say
        play(0, 0, 5000, 0, step_ms=5000, programs=6),
        play(0, 0, 130, 0),  # the others have gone on: they do not wait
        play(0, 0, 12, 0, uncertain_s=0.02),  # clocks of two hosts
        play(12),
    ],
)
def test_nobody_is_named_without_a_reason(history: ProgramSequences) -> None:
    assert say(history) == []


def test_known_times_stand_for_the_programs_between_them() -> None:
    assert say(play(0, 0, 12, 0, programs=1401, every=7, step_ms=40)) == [
        late(2, 100, "12 ms", 30, "1,400")
    ]
    assert say(play(0, 0, 300, 0, programs=1401, every=7)) == []  # behind, without a wait


def test_rank_that_is_late_now_and_then_is_not_named() -> None:
    """A checkpoint, or ranks that take turns; however long the others wait."""
    seldom, turns = make(3), make(3)
    for number in range(1, 300):
        for rank in range(3):
            is_late = rank == 1 and number % 3 == 0
            come(seldom, rank, number, number * 1000 + 900 * is_late)
            come(turns, rank, number, number * 1000 + 900 * (number % 3 == rank))
    assert say(seldom) == say(turns) == []


def test_program_with_the_longest_waits_is_named() -> None:
    """A step may have many programs, of which a slow rank comes late to one."""
    sequences = make(2)
    for number in range(1, 401):
        program, late_ms = (LOSS, 60) if number % 4 == 0 else (STEP, 0)
        come(sequences, 0, number, number * 100, program)
        come(sequences, 1, number, number * 100 + late_ms, program)
    [words] = say(sequences)
    assert words == (
        "rank 1 came late to 100 % of 99 runs of jit(loss) at train.py:31, "
        "by 60 ms: the others waited 15 % of the time for it"
    )


def test_slow_rank_is_told_once_during_the_run_and_at_the_end() -> None:
    """Here for the first minutes of ten."""
    told = Told([], 3)
    sequences = told.state.sequences = make(3)
    for number in range(1, 6001):
        for rank in range(3):
            come(sequences, rank, number, number * 100 + 30 * (rank == 1 and number < 1200))
        if number % 100 == 0:
            told.announcer.record(CameLate(), told.now)
            told.happens(10.0)
    assert [note.partition(" to ")[0] for note in told.notes] == ["rank 1 came late"]
    [words] = say(sequences)
    assert words.startswith("rank 1 came late to 100 % of ")
    assert " at train.py:30 for a time, by 30 ms: " in words


def test_at_most_three_slow_ranks_of_a_mesh_are_told() -> None:
    told = Told([], 9)
    told.state.sequences = play(*[0] * 5, 20, 30, 40, 50, programs=1500)
    told.announcer.record(CameLate(), told.now)
    told.happens(10.0)
    named = [note.partition(" came late")[0] for note in told.notes]
    assert sorted(named) == ["rank 6", "rank 7", "rank 8"]
    assert len(say(told.state.sequences)) == 3


def test_ranks_may_report_in_any_order_and_leave_programs_out() -> None:
    sequences = make(2)
    for number in range(1, 201):
        come(sequences, 0, number, number * 100)
    for number in range(1, 201, 3):
        come(sequences, 1, number, number * 100 + 20)
    come(sequences, 5, 1, 0)  # of another mesh
    assert say(sequences) == [late(1, 100, "20 ms", 20, "198")]


def test_times_that_not_all_ranks_have_are_forgotten() -> None:
    sequences = make(2)
    for number in range(1, 20_001):
        come(sequences, 0, number, number * 100)
    come(sequences, 1, 1, 0)
    for number in range(19_001, 19_201):
        come(sequences, 1, number, number * 100 + 20)
    assert say(sequences) == [late(1, 100, "20 ms", 20)]

"""Comparison of the values that ranks hold in common, and the launches that are chosen for it."""

import sys
import time
from array import array
from binascii import b2a_base64
from contextlib import nullcontext
from itertools import pairwise
from types import SimpleNamespace

import pytest

from mcjax_launch.features.recorder.differences import advise_on_values, describe_values
from mcjax_launch.features.recorder.hook.values import (
    FIRST,
    ComparedProgram,
    StartedDigests,
    Values,
)
from mcjax_launch.features.recorder.replicas import HeldPart
from mcjax_launch.features.recorder.sequences import MeshSequence, ProgramName, ProgramSequences

PLACE, STEP = (0, 7), 5
W, B = HeldPart(0, "['w']", ""), HeldPart(1, "['b']", "")


class Compared:
    """Comparison of ranks that have run some programs of one mesh."""

    def __init__(self, ranks: int, programs: int = 1) -> None:
        self.sequences = ProgramSequences()
        self.sequences.names.record(STEP, ProgramName("jit(step)", "t.py:3"))
        self.values = self.sequences.values
        self.mesh = self.sequences.meshes[PLACE] = MeshSequence(range(ranks))
        for rank in range(ranks):
            self.run(rank, programs)
            self.describe(rank, W, B)

    def run(self, rank: int, programs: int) -> None:
        first = self.mesh.by_rank[rank].count + 1
        self.mesh.add(rank, first, [STEP] * programs, 0, 0.0)
        self.sequences.compare((), 0.0, 0.0)

    def describe(self, rank: int, *parts: HeldPart, of_arguments: bool = False) -> None:
        self.values.describe(rank, STEP, parts, of_arguments=of_arguments)

    def report(self, rank: int, *digests: int, number: int = 1, of_arguments: bool = False) -> None:
        program, found = (number, STEP), array("I", digests)
        self.values.add(PLACE, rank, program, found, of_arguments=of_arguments)

    def compare(self, now: float = 0.0, ended: tuple[int, ...] = ()) -> str:
        """Return the line on the first difference; "" if there is none."""
        self.values.compare(self.sequences.meshes, ended, now)
        found = self.values.difference
        return "" if found is None else describe_values(self.sequences, found)


def test_equal_values_are_no_difference() -> None:
    job = Compared(3)
    for rank in range(3):
        job.report(rank, 1, 2)
    assert job.compare(4.0) == ""
    last = job.values.last
    assert last is not None
    assert (last.number, last.arrays, last.ranks, last.at) == (1, 2, 3, 4.0)


@pytest.mark.parametrize(
    ("digests", "line"),
    [
        ((1, 1, 9, 1), "rank 2 holds other bits than ranks 0-1,3 in output ['w']"),
        ((1, 8, 9, 1), "ranks 1-2 hold other bits than ranks 0,3 in output ['w']"),
        ((1, 2, 3, 4), "ranks 0-3 each hold other bits in output ['w']"),
        ((1, 9), "rank 1 holds other bits than rank 0 in output ['w']"),
    ],
)
def test_ranks_with_other_values_than_most_are_named(digests: tuple[int, ...], line: str) -> None:
    job = Compared(len(digests))
    for rank, digest in enumerate(digests):
        job.report(rank, digest, 2)
    assert job.compare() == f"{line} of jit(step) at t.py:3 (program 1 of this mesh)"


def test_only_the_same_part_of_an_array_is_compared() -> None:
    job = Compared(4)
    for rank in range(4):
        job.describe(rank, HeldPart(0, "['w']", f"[{rank % 2}:{rank % 2 + 1}, :]"))
        job.report(rank, rank % 2)
    assert job.compare() == ""
    for rank in range(4):
        job.run(rank, 1)
    for rank in range(4):
        job.report(rank, 9 if rank == 3 else rank % 2, number=2)
    assert job.compare().startswith("rank 3 holds other bits than rank 1 in part [1:2, :] of ")


def test_arguments_are_told_before_outputs() -> None:
    """And before the program has run."""
    job = Compared(2, programs=0)
    for rank in range(2):
        job.describe(rank, HeldPart(3, "p['w']", ""), of_arguments=True)
        job.report(rank, 1, 10 + rank)
        job.report(rank, rank, of_arguments=True)
    assert "in argument p['w'] of jit(step)" in job.compare()


def test_values_wait_until_the_programs_are_known_to_be_equal() -> None:
    job = Compared(2, programs=1)
    job.report(0, 1, 1, number=2)
    job.report(1, 2, 2, number=2)
    assert job.compare(9.0) == ""
    job.run(0, 1)
    assert job.compare(9.0) == ""
    job.run(1, 1)
    assert "and 1 more of jit(step)" in job.compare(9.0)


def test_values_are_compared_when_all_ranks_have_come_however_late() -> None:
    """Else a healthy rank would be named."""
    job = Compared(3, programs=1)
    job.report(1, 2, 1)
    job.report(2, 1, 1)
    for number in range(2, 20):  # of these ranks
        job.run(1, 1)
        job.run(2, 1)
        job.report(1, 2, 1, number=number)
        job.report(2, 1, 1, number=number)
    assert job.compare(9999.0) == ""
    job.report(0, 1, 1)
    assert job.compare(9999.0).startswith("rank 1 holds other bits than ranks 0,2 in output ['w']")


def test_launches_that_only_some_ranks_compare_are_left_out() -> None:
    """They are chosen by the time that each rank has."""
    job = Compared(3, programs=3)
    for rank, digest in ((0, 1), (1, 2)):
        job.report(rank, digest, 1)
    job.report(2, 1, 1, number=2)
    assert job.compare() == ""
    for rank, digest in ((0, 1), (1, 2)):
        job.report(rank, digest, 1, number=2)
    assert job.compare().endswith("of jit(step) at t.py:3 (program 2 of this mesh)")


def test_ranks_that_have_ended_are_not_waited_for() -> None:
    job = Compared(3, programs=1)
    for rank, digest in ((0, 1), (1, 2)):
        job.report(rank, digest, 1)
    assert job.compare(0.0, ended=(2,)) == ""
    assert job.values.count == 0


def test_digests_are_kept_for_a_bounded_number_of_programs() -> None:
    job = Compared(2, programs=1)
    for number in range(1, 301):
        job.report(0, 1, 1, number=number)
    assert job.values.dropped == 44


@pytest.mark.parametrize(
    ("is_mapped", "words"), [(True, "check_vma=False"), (False, "numpy arrays")]
)
def test_output_that_differs_has_a_hint(is_mapped: bool, words: str) -> None:
    job = Compared(2)
    for rank in range(2):
        job.values.describe(rank, STEP, [W], of_arguments=False, is_mapped=is_mapped)
        job.report(rank, rank)
    job.compare()
    assert job.values.difference is not None
    assert words in advise_on_values(job.values.difference)


def test_values_of_other_processors_are_not_compared() -> None:
    job = Compared(3)
    job.values.processors = {0: "a", 1: "a", 2: "b"}
    for rank, digest in enumerate((1, 1, 2)):
        job.report(rank, digest, 2)
    assert job.compare() == ""
    assert job.values.last is not None
    assert job.values.last.ranks == 2


def test_values_behind_a_difference_of_programs_are_not_compared() -> None:
    job = Compared(2)
    job.mesh.add(0, 2, [6, 7, 8], 0, 0.0)
    job.mesh.add(1, 2, [7, 8, 9], 0, 0.0)
    job.sequences.compare((), 9.0, 0.0)
    assert job.mesh.difference is not None
    job.report(0, 1, 1)
    job.report(1, 2, 2)
    assert job.compare(9.0) == ""


def choose(
    monkeypatch: pytest.MonkeyPatch, launches: int, every_s: float, cost_s: float
) -> list[int]:
    """Return the numbers of the launches that are compared."""
    now, chosen = 0.0, list[int]()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    program = ComparedProgram(SimpleNamespace(), SimpleNamespace())  # type: ignore[arg-type]
    for number in range(1, launches + 1):
        now += every_s
        program.left -= 1
        if not program.left:
            chosen.append(number)
            program.choose_next(cost_s, programs=1)
    return chosen


def test_fast_launches_are_compared_about_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = choose(monkeypatch, 60_000, 0.001, cost_s=0.0001)
    assert chosen[:FIRST] == list(range(1, FIRST + 1))
    later = [number for number in chosen if number > 3000]
    assert {next_ - number for number, next_ in pairwise(later)} == {1024}


def test_slow_launches_are_all_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose(monkeypatch, 100, 1.5, cost_s=0.001) == list(range(1, 101))


def test_dear_comparisons_take_at_most_a_hundredth_of_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chosen = choose(monkeypatch, 20_000, 0.1, cost_s=0.2)
    later = [number for number in chosen if number > 1000]
    assert len(later) * 0.2 <= 19_000 * 0.1 / 100


def test_ranks_of_other_speed_compare_the_same_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    fast = choose(monkeypatch, 60_000, 0.001, cost_s=0.0001)
    slow = choose(monkeypatch, 60_000, 0.0013, cost_s=0.0004)
    assert set(fast) <= set(slow)
    assert len(fast) > 60


class Digest:
    """Result of a digest's program: an array that is ready, or the error of the launch before."""

    def __init__(self, value: int | None) -> None:
        self.value = value

    def disassemble_into_single_device_arrays(self) -> "list[list[Digest]]":
        return [[self]]

    def is_ready(self) -> bool:
        return True

    def __int__(self) -> int:
        if self.value is None:
            raise RuntimeError("the launch has failed")
        return self.value


def test_launch_that_fails_is_left_out_and_its_error_is_its_callers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    jax = SimpleNamespace(
        live_arrays=lambda platform=None: [], transfer_guard_device_to_host=lambda _: nullcontext()
    )
    monkeypatch.setitem(sys.modules, "jax", jax)
    monkeypatch.setitem(sys.modules, "numpy", SimpleNamespace(asarray=lambda digest: digest))
    sent: list[object] = []
    values = Values(SimpleNamespace(send=sent.append), list)  # type: ignore[arg-type]
    launches: list[list[int | None]] = [[1, None, 3], [4, 5]]
    for number, words in enumerate(launches):
        launch = StartedDigests(len(words), lambda text, number=number: (number, text))  # type: ignore
        values.running.extend((Digest(word), launch) for word in words)
    values.collect()
    assert sent == [(1, b2a_base64(array("I", [4, 5]).tobytes(), newline=False).decode())]
    assert not values.running

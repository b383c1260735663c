"""Ranks that are held at a program: who is let go, and when the ranks differ."""

from typing import Any

import pytest
from records import run_of

from mcjax_launch.diagnosis.snapshots import Stack, make_snapshots
from mcjax_launch.diagnosis.spmd import describe_divergence
from mcjax_launch.features.verify_spmd.watch import (
    Decision,
    Diverged,
    PollRanks,
    Release,
    Say,
    ShowCode,
    SpmdWatch,
)
from mcjax_launch.runs.hook_events import apply
from mcjax_launch.runs.spmd import Comparison, RanProgram
from mcjax_launch.runs.state import RunState
from mcjax_launch.runs.stop_reasons import interrupted
from mcjax_launch.wire import hook_messages
from mcjax_launch.wire.messages import FromHook, RankUsage, Usage

ALL = frozenset(range(3))
METRIC = RanProgram("jit_metric", "m", ALL, ("f32[4]",), "train.py:12")
HELD = RanProgram("jit_held", "h", ALL, (), "train.py:20")
SITE = "/v/lib/python3.11/site-packages"
CALLS = {
    "result": f"{SITE}/jax/_src/array.py:642:_value",
    "first run": f"{SITE}/jax/_src/interpreters/pxla.py:1298:__call__",
    "barrier": f"{SITE}/jax/_src/distributed.py:9:wait_at_barrier",
    "loading": "/usr/lib/python3.11/queue.py:171:get",
    "another": f"{SITE}/jax/_src/api.py:2:block_until_ready",
    "held": f"{SITE}/mcjax_launch/features/verify_spmd/hook.py:71:hold",
}


class Job:
    """Three ranks that have run `metric`; rank 0 is held at `held`, and 1 and 2 have not come."""

    def __init__(self) -> None:
        self.state = run_of(3)
        self.programs = self.state.programs
        self.watch = SpmdWatch(self.state)
        for rank, run in self.state.ranks.items():
            self.programs.record_run(rank, METRIC)
            run.compilations.ran[METRIC.where] = METRIC
            run.membership.joining_at = run.membership.joined_at = 1
        self.now = 100.0
        self.cpu_s = dict.fromkeys(ALL, 0.0)
        self.places = {0: "held", 1: "result", 2: "result"}
        self.programs.record_run(0, HELD, held=True)

    def wait(self, seconds: float) -> list[Decision]:
        """Time passes, in which ranks stay where they are; what is decided."""
        decided: list[Decision] = []
        until = self.now + seconds
        while self.now < until:
            self.now += 0.25
            for decision in self.watch.expire(self.now):
                if isinstance(decision, PollRanks):
                    used = (RankUsage(rank, cpu_s, 1, 0.0) for rank, cpu_s in self.cpu_s.items())
                    self.state.record_usage(Usage(tuple(used)), self.now)
                    self.now += 0.1
                    decided += self.watch.on_stacks(self.stacks(), self.now)
                else:
                    decided.append(decision)
        return decided

    def stacks(self) -> list[Stack]:
        """Of the ranks, in the user's function f."""
        stacks = []
        for rank, kind in self.places.items():
            at = f"/me/train.py:{13 if kind == 'another' else 12}:f"
            frames = (frame.rsplit(":", 2) for frame in (CALLS[kind], at))
            lines = (f'  File "{f}", line {n} in {name}\n    {name}(x)\n' for f, n, name in frames)
            text = "Stack (most recent call first):\n" + "".join(lines)
            stacks.append(Stack(rank, "h", 70 + rank, text))
        return stacks


@pytest.fixture
def job() -> Job:
    return Job()


LET_GO = [
    Say(
        "rank 0 has waited 10 s before program #2 jit(held) at train.py:20 for ranks 1-2, "
        "and now runs it unverified"
    ),
    Release("h", frozenset({0})),
]


def test_waiting_watch_has_no_deadline(job: Job) -> None:
    assert job.wait(2) == []
    for rank in (1, 2):
        job.programs.record_run(rank, HELD, held=True)
    assert job.wait(1) == [Release("h", ALL)]
    assert job.watch.deadline is None


def test_mutually_waiting_ranks_run_different_programs(job: Job) -> None:
    """Rank 0 has skipped `metric`: the others are in it, which they cannot leave without it."""
    assert job.wait(10) == []
    show, early = job.wait(0.5)
    assert show == ShowCode("h", 0)
    assert isinstance(early, Diverged) and not early.is_settled
    apply(job.state, FromHook(0, hook_messages.ProgramText("h", "module", last=True)), 2.0)
    [settled] = job.wait(0.5)
    assert isinstance(settled, Diverged) and settled.is_settled
    assert describe_divergence(job.programs) == [
        "program #2: rank 0 train.py:20 jit(held) · ranks 1-2 ran train.py:12 jit(metric) f32[4] "
        "again instead"
    ]


def test_ranks_in_one_program_and_held_at_another_diverge(job: Job) -> None:
    """None of them can go on, though none of these programs differs from another."""
    job.programs.record_run(
        1, RanProgram("jit_pair", "p", frozenset({1, 2}), (), "train.py:30"), held=True
    )
    job.places[1] = "held"
    assert [type(decision) for decision in job.wait(12)] == [ShowCode, Diverged]


def test_unfinished_first_run_is_no_other_program(job: Job) -> None:
    """Rank 0 has run `metric` too: JAX itself hangs, as some releases do on few cores."""
    job.places = {0: "held", 1: "first run", 2: "first run"}
    assert job.wait(60) == []
    job.places[2] = "result"
    assert [type(decision) for decision in job.wait(20)] == [ShowCode, Diverged, Diverged]


def test_first_run_of_an_unknown_program_is_a_divergence(job: Job) -> None:
    apart = RanProgram("jit_apart", "a", ALL, (), "train.py:12")
    job.programs.record_run(1, apart)
    job.state.ranks[1].compilations.ran[apart.where] = apart
    job.places[1] = "first run"
    assert Diverged in map(type, job.wait(20))


@pytest.mark.parametrize("place", ["barrier", "loading", ""])
def test_ranks_are_released_if_another_rank_is_in_no_program(job: Job, place: str) -> None:
    """What it waits for may be what the program that is held does; or nothing is known."""
    job.places = {0: "held", 1: "result", **({2: place} if place else {})}
    assert job.wait(12) == LET_GO
    assert job.wait(60) == []


def test_rank_seen_in_a_program_every_other_time_is_waited_for(job: Job) -> None:
    """A stack may be taken in a moment in which it does not show that."""
    for place in ("result", "loading", "result"):
        job.places[2] = place
        assert job.wait(7) == []
    assert [type(decision) for decision in job.wait(14)][:2] == [ShowCode, Diverged]


def test_late_host_keeps_the_positions_of_its_ranks(job: Job) -> None:
    job.wait(4)
    del job.places[2]
    job.cpu_s[2] += 1
    assert job.wait(8) == []


def test_suspended_time_does_not_count(job: Job) -> None:
    """Its ranks have used nothing, and nobody has waited."""
    assert job.wait(4) == []
    job.now += 1000
    job.state.record_resume(job.now)
    assert job.wait(6) == []
    assert [type(decision) for decision in job.wait(2)] == [ShowCode, Diverged]


BUSY = {
    "a long program": lambda job: job.cpu_s.update({1: job.cpu_s[1] + 1}),
    "another place": lambda job: job.places.update(
        {2: "result" if job.places[2] == "another" else "another"}
    ),
    "an accelerator": lambda job: setattr(job.state.ranks[1].compilations, "platform", "gpu"),
    "a compilation": lambda job: setattr(job.state.ranks[2].compilations, "under_way", 1),
    "others' ranks": lambda job: setattr(job.state, "num_processes", 4),
}  # fmt: skip


@pytest.mark.parametrize("name", BUSY)
def test_moving_rank_is_waited_for_with_a_limit(job: Job, name: str) -> None:
    """It is waited for, but not for ever."""
    if name == "a compilation":
        job.places[2] = "loading"
    decided: list[Any] = []
    while not decided and job.now < 300:
        BUSY[name](job)
        decided += job.wait(7)
    assert 200 < job.now < 215
    [note, released] = decided
    assert isinstance(note, Say) and note.text.endswith("and now runs it unverified")
    assert released == LET_GO[1]


def test_all_ranks_are_released_when_the_user_ends_the_job(job: Job) -> None:
    job.state.record_stop(interrupted(2), 1.0)
    assert job.wait(1) == [Release("h", frozenset({0}))]
    late = hook_messages.Program("jit_late", "l", None, (), "", held=True)
    apply(job.state, FromHook(1, late), 2.0)
    assert job.wait(1) == [Release("l", frozenset({1}))]


def test_no_rank_is_released_after_a_failure(job: Job) -> None:
    """They would only lose their peer."""
    apply(job.state, FromHook(1, hook_messages.Failed(1, joined=True)), 2.0)
    late = hook_messages.Program("jit_late", "l", None, (), "", held=True)
    apply(job.state, FromHook(2, late), 2.0)
    assert job.wait(120) == []


def ran(state: RunState, rank: int, fingerprint: str) -> None:
    apply(
        state, FromHook(rank, hook_messages.Program("jit_f", fingerprint, None, (), "t.py:1")), 5.0
    )


def test_all_sides_of_a_divergence_get_time_to_report() -> None:
    state = run_of(3, num_processes=0)
    watch = SpmdWatch(state)
    ran(state, 0, "a")
    ran(state, 1, "b")
    [early] = watch.expire(5.0)
    assert isinstance(early, Diverged) and not early.is_settled
    state.record_stop(early.stop, 5.0)
    assert watch.deadline == 6.0
    assert watch.expire(5.2) == []
    ran(state, 2, "a")
    [decided] = watch.expire(5.5)
    assert isinstance(decided, Diverged) and decided.is_settled
    stop = decided.stop
    assert (stop.status, stop.final, stop.needs_stacks) == (1, True, False)
    assert stop.details[0] == "program #1: ranks 0-2 t.py:1 jit(f)"
    different = "same name and shapes, different code on ranks 0,2 · rank 1: "
    assert stop.details[1].startswith(different)
    assert watch.deadline is None
    assert watch.expire(9.0) == []


def test_an_unsupported_jax_is_reported(job: Job) -> None:
    apply(job.state, FromHook(2, hook_messages.Blind("it has no compile_or_get_cached")), 3.0)
    [decided] = job.watch.expire(3.0)
    assert isinstance(decided, Diverged) and decided.is_settled
    words = decided.stop.message.rpartition(": ")[2]
    assert (decided.stop.status, words) == (1, "it has no compile_or_get_cached")


LINES = {
    "batch = q.get()": False,
    "with lock:": False,
    "lock.acquire(timeout=3)": False,
    "": False,
    "loss = step(x)": True,
}


@pytest.mark.parametrize("source", LINES)
def test_line_of_the_user_without_calls_is_in_no_program(job: Job, source: str) -> None:
    """But where that line calls what may be one: JAX's C++ runs known programs without Python."""
    text = f'Stack (most recent call first):\n  File "/me/train.py", line 40 in f\n    {source}\n'
    stack = Stack(1, "h", 71, text, blocked="futex_do_wait")
    seen = make_snapshots(job.state, [stack])[1]
    assert (seen.in_program is not None) == LINES[source]


def test_ranks_in_programs_on_different_devices_are_not_judged(job: Job) -> None:
    """Rank 0 is held at one, rank 1 at another: a second thread of each may come to the other's."""
    both = frozenset({0, 1})
    for rank in (1, 2):
        job.programs.record_run(rank, HELD, held=True)
    assert job.wait(1) == [Release("h", ALL)]
    for rank in both:
        program = RanProgram(f"jit_{rank}", f"p{rank}", both, (), "", frozenset({rank, rank + 2}))
        job.programs.record_run(rank, program, held=True)
        job.places[rank] = "held"
    assert job.wait(20) == []


def test_ranks_too_far_apart_are_not_compared() -> None:
    comparison, both = Comparison(), frozenset({0, 1})
    programs = [RanProgram("jit_f", f"f{number}", both) for number in range(2500)]
    for program in programs[:-1]:
        comparison.record_run(0, program, held=True)
        comparison.release(program)
    for program in programs[:-1]:
        comparison.record_run(1, program, held=True)
    comparison.record_run(0, programs[-1], held=True)
    assert comparison.compute_ordinal(programs[-1]) > 0
    comparison.record_skip(programs[-1], {})
    assert comparison.divergence is None


NEW = hook_messages.Program("jit_new", "n", None, (), "train.py:30", compiling=True)


def compile_(job: Job, *ranks: int, program: hook_messages.Program = NEW) -> None:
    for rank in ranks:
        for said in (hook_messages.Compiling(program.name, program.where, "gpu"), program):
            apply(job.state, FromHook(rank, said), job.now)
        job.places[rank] = "result"


def test_end_of_a_compilation_may_precede_its_announcement(job: Job) -> None:
    """They come over two connections."""
    begun = hook_messages.Compiling(NEW.name, NEW.where, "cpu")
    other = NEW.copy_with(fingerprint="o")
    for said, compiled in (
        (begun, None),
        (hook_messages.Compiled(), None),
        (NEW, NEW),
        (hook_messages.ProgramCompiled("n"), None),
        (other, other),
        (begun, other),
        (hook_messages.ProgramCompiled("n"), other),
    ):
        apply(job.state, FromHook(1, said), job.now)
        assert job.state.ranks[1].compilations.program == compiled


def test_ranks_that_compile_are_watched_though_none_is_held() -> None:
    """Rank 1 has skipped what the others compile together, as GPUs do, and has run nothing new."""
    job = Job()
    for rank in (1, 2):
        job.programs.record_run(rank, HELD, held=True)
    assert job.wait(1) == [Release("h", ALL)]
    for rank in range(3):
        apply(job.state, FromHook(rank, hook_messages.Joined(rank)), 1.0)
        job.state.record_process(rank, rank)
        job.places[rank] = "result"
    assert job.watch.deadline is None
    compile_(job, 0, 2)
    assert any(isinstance(decision, Diverged) for decision in job.wait(12))


@pytest.mark.parametrize(
    ("ranks", "computes", "told"),
    [
        ((1, 2), (), True),  # while the first is held at another
        ((1, 2), (1,), False),  # whoever computes will come
        ((1,), (), True),
    ],
)
def test_rank_stuck_in_a_compilation_is_a_divergence(
    job: Job, ranks: tuple[int, ...], computes: tuple[int, ...], *, told: bool
) -> None:
    """It will not come to where others are held, or stand still as well."""
    for rank in range(3):
        apply(job.state, FromHook(rank, hook_messages.Joined(rank)), 1.0)
        job.state.record_process(rank, rank)
    compile_(job, *ranks)
    decided = job.wait(4)
    for rank in computes:
        job.cpu_s[rank] += 3
    decided += job.wait(8)
    assert any(isinstance(decision, Diverged) for decision in decided) == told
    if told:
        assert "program #2: rank 0 train.py:20 jit(held)" in describe_divergence(job.programs)[0]


def test_differing_arguments_end_the_job_before_the_program_runs(job: Job) -> None:
    for rank, checksum in enumerate(["a", "b", "a"]):
        job.programs.checksums.compare(rank, HELD, ("", "7", checksum))
        if rank:
            job.programs.record_run(rank, HELD, held=True)
    show, early = job.wait(0.5)
    assert show == ShowCode("h", 0)
    assert isinstance(early, Diverged) and not early.is_settled
    assert early.stop.details[0] == (
        "jit(held) at train.py:20: argument 3 is replicated, and differs between ranks 0,2 · rank 1"
    )
    [settled] = job.wait(11)
    assert isinstance(settled, Diverged) and settled.is_settled
    assert not job.state.pop_released()

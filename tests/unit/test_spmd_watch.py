"""Ranks that have not reached a program: which are slow, and which have passed it by."""

import pytest

from mcjax_launch.diagnosis.spmd import divergence_lines
from mcjax_launch.diagnosis.stacks import Stack
from mcjax_launch.hook.mcjax_hook import replica_groups as groups
from mcjax_launch.protocol import hook_messages
from mcjax_launch.protocol.messages import FromHook, RankUsage, Usage
from mcjax_launch.runs.hook_events import take
from mcjax_launch.runs.spmd import Program, Rerun
from mcjax_launch.runs.state import RunState
from mcjax_launch.runs.stop_reasons import interrupted
from mcjax_launch.watchdog.spmd import LOOK_AFTER_S, LOOK_EVERY_S, MOST_LAG, SpmdWatch

ALL = frozenset(range(3))
STEP = Program("jit_step", "s", ALL, ("f32[4]",), "train.py:9")
LOSS = Program("jit_loss", "l", ALL, ("f32[4]",), "train.py:10")
METRIC = Program("jit_metric", "m", ALL, ("f32[4]",), "train.py:12")
HELD = Program("jit_held", "h", ALL, (), "train.py:20")


class Job:
    """Three ranks that have run `step` and `loss`; rank 0 goes on to `metric`."""

    def __init__(self) -> None:
        self.state = RunState()
        self.state.planned("job", "a:1", dict.fromkeys(range(3), "h"), None)
        self.programs = self.state.programs
        self.watch = SpmdWatch(self.state)
        for program in (STEP, LOSS):
            for rank in ALL:
                self.programs.ran(rank, program)
        self.now = 100.0
        self.watch.expire(self.now)
        self.programs.ran(0, METRIC)
        self.now += LOOK_AFTER_S
        self.watch.expire(self.now)

    def wait(self, seconds: float) -> list[str]:
        """Time passes, in which nothing runs; what is said."""
        for _ in range(int(seconds / LOOK_EVERY_S)):
            self.now += LOOK_EVERY_S
            self.watch.expire(self.now)
        return self.watch.take_notes()

    def run(
        self, rank: int, program: Program, requests: int, partners: frozenset[int] = ALL
    ) -> None:
        """A rank runs a program again for each of so many requests."""
        for request in range(requests):
            self.programs.reruns.append(Rerun(rank, program, request + 1, partners - {rank}))
        self.wait(LOOK_EVERY_S)


@pytest.fixture
def job() -> Job:
    return Job()


def test_nothing_is_done_while_no_rank_waits(job: Job) -> None:
    job.wait(3)
    assert job.watch.take_ranks_to_ask() == [1, 2]
    for rank in (1, 2):
        job.programs.ran(rank, METRIC)
    job.wait(3)
    assert job.watch.deadline is None
    job.watch.take_ranks_to_ask()
    job.wait(3)
    assert job.watch.take_ranks_to_ask() == []


def test_no_rank_is_asked_at_once(job: Job) -> None:
    job.wait(LOOK_AFTER_S - LOOK_EVERY_S)
    assert job.watch.take_ranks_to_ask() == []


@pytest.mark.parametrize("program", [STEP, LOSS])
def test_passed_by(job: Job, program: Program) -> None:
    job.wait(3)
    for rank in (1, 2):
        job.run(rank, program, MOST_LAG - 1)
    assert job.programs.divergence is None
    job.programs.reruns += [
        Rerun(1, program, request, ALL - {1}) for request in range(MOST_LAG, 60)
    ]
    job.wait(1)
    name = program.title
    assert job.programs.settled
    assert divergence_lines(job.programs) == [
        "program #3: rank 0 train.py:12 jit(metric) f32[4] · ranks 1-2 ran "
        f"{program.where} {name} f32[4] again instead"
    ]


def test_one_rank_passed_by_and_one_is_slow(job: Job) -> None:
    job.wait(3)
    job.run(2, STEP, MOST_LAG)
    [words] = divergence_lines(job.programs)
    assert words.endswith(
        "rank 1 not there yet · rank 2 ran train.py:9 jit(step) f32[4] again instead"
    )
    assert not job.programs.settled


def test_the_first_rank_passed_by() -> None:
    job = Job()
    last = Program("jit_last", "z", ALL, (), "train.py:20")
    for rank in (1, 2):
        job.programs.ran(rank, METRIC)
        job.programs.ran(rank, last)
    job.wait(5)
    job.run(0, STEP, MOST_LAG)
    [words] = divergence_lines(job.programs)
    assert words == (
        "program #4: rank 0 ran train.py:9 jit(step) f32[4] again instead"
        " · ranks 1-2 train.py:20 jit(last)"
    )


INNOCENT = {
    "it comes after all": lambda job: (job.run(1, STEP, 39), job.programs.ran(1, METRIC)),
    "it needs nobody": lambda job: job.run(1, STEP, 100, frozenset()),
    "it needs one that has not come either": lambda job: job.run(1, STEP, 100, frozenset({2})),
    "all for one request": lambda job: [job.run(1, STEP, 1) for _ in range(100)],
    "who has come": lambda job: job.run(0, STEP, 100),
}


@pytest.mark.parametrize("name", INNOCENT)
def test_not_passed_by(job: Job, name: str) -> None:
    job.wait(3)
    INNOCENT[name](job)
    job.wait(20)
    assert job.programs.divergence is None


def test_noted_once(job: Job) -> None:
    assert job.wait(8) == []
    assert job.wait(8) == [
        "rank 0 has waited 10 s in program #3 jit(metric) at train.py:12, which ranks 1-2 "
        "have not reached"
    ]
    assert job.wait(60) == []


def test_not_noted_while_the_others_compile(job: Job) -> None:
    for rank in (1, 2):
        job.state.ranks[rank].compilations.under_way = 1
    assert job.wait(30) == []
    job.state.ranks[1].compilations.under_way = 0
    assert len(job.wait(3)) == 1


def test_less_often_when_it_lasts(job: Job) -> None:
    job.wait(1000)
    job.watch.take_ranks_to_ask()
    looks = 0
    for _ in range(160):
        job.wait(LOOK_EVERY_S)
        looks += bool(job.watch.take_ranks_to_ask())
    assert looks in (3, 4)


# What a compiled program says: the processes that rank 1 of four needs, two devices each.
NEEDED = {
    " all-reduce(%a), channel_id=1, replica_groups={}, to_apply=%r": [0, 2, 3],
    " all-reduce-start(%a), channel_id=1, replica_groups={{0,1},{2,3},{4,5},{6,7}}, x": [],
    " all-gather(%a), replica_groups={{0,2},{1,3},{4,6},{5,7}}, dimensions={0}": [0],
    " all-reduce(%a), replica_groups=[1,8]<=[8], use_global_device_ids=true": [0, 2, 3],
    " reduce-scatter(%a), replica_groups=[2,4]<=[8], dimensions={0}": [0],
    " all-to-all(%a), replica_groups=[2,4]<=[4,2]T(1,0)": [0, 2, 3],
    " all-reduce(%a), replica_groups=[4,2]<=[2,4]T(1,0), x": [3],
    " all-reduce(%a), replica_groups=mesh['a'=8] {'a'}, x": [0, 2, 3],
    " all-reduce(%a), replica_groups=mesh['a'=4,'b'=2] {'b'}, x": [],
    " all-reduce(%a), replica_groups=mesh['a'=2,'b'=2,'c'=2] {'a','c'}, x": [3],
    " all-reduce(%a), replica_groups=mesh['a'=8] {'a':(1)2}, x": [],
    " all-reduce(%a), replica_groups=mesh['a'=2,'b'=4], device_ids=([4,2]T(1,0)) {'a'}, x": [],
    " all-reduce(%a), replica_groups=mesh['a'=4,'b'=2], device_ids=([2,4]T(1,0)) {'b'}, x": [3],
    " all-reduce(%a), replica_groups=something else, x": [],
    " collective-permute(%a), source_target_pairs={{0,1},{1,2}}": [],
    " conditional(%p)\n all-reduce(%a), replica_groups={}, x\n\nENTRY %main": [],
    " conditional(%p)\n\nENTRY %main\n all-reduce(%a), replica_groups={}, x": [0, 2, 3],
    " sine(%a)": [],
}


@pytest.mark.parametrize("text", NEEDED)
def test_partners(text: str) -> None:
    assert groups.partners(text, [0, 0, 1, 1, 2, 2, 3, 3], 1) == NEEDED[text]


# What a compiled program says: whether its processes exchange anything, two devices each.
EXCHANGED = {
    " all-reduce(%a), channel_id=1, replica_groups={}, to_apply=%r": True,
    " all-reduce(%a), replica_groups={{0,1},{2,3},{4,5},{6,7}}, x": False,
    " all-gather-start(%a), replica_groups=[4,2]<=[8], dimensions={0}": False,
    " ragged-all-to-all(%a), replica_groups=[2,4]<=[8]": True,
    " all-reduce(%a), replica_groups=mesh['a'=4,'b'=2] {'b'}, x": False,
    " all-reduce(%a), replica_groups=mesh['a'=2,'b'=4], device_ids=([4,2]T(1,0)) {'a'}, x": False,
    " all-reduce(%a), replica_groups=mesh['a'=4,'b'=2], device_ids=([2,4]T(1,0)) {'b'}, x": True,
    " all-reduce(%a), replica_groups=something else, x": True,
    " collective-permute(%a), source_target_pairs={{0,1},{1,0}}": False,
    " collective-permute(%a), source_target_pairs={{0,1},{1,2}}": True,
    " collective-permute(%a), from=nowhere": True,
    " collective-broadcast(%a), replica_groups={{0,7}}": True,
    " conditional(%p)\n all-reduce(%a), replica_groups={}, x\n\nENTRY %main": True,
    " send(%a, %token), channel_id=1, is_host_transfer=true": False,
    " send(%a, %token), channel_id=1": True,
    ' custom-call(%a), custom_call_target="lapack_sgetrf_ffi"': False,
    " sine(%all-reduce.1)": False,
}


@pytest.mark.parametrize("text", EXCHANGED)
def test_what_is_exchanged(text: str) -> None:
    assert groups.exchanges(text, [0, 0, 1, 1, 2, 2, 3, 3]) == EXCHANGED[text]


# --- ranks that are held at a program ---


def held_job(missing_compile: bool = False) -> Job:
    """Rank 0 is held at `metric`."""
    job = Job()
    job.programs = job.state.programs
    for rank in (1, 2):
        job.state.ranks[rank].compilations.under_way = int(missing_compile)
    for rank in ALL:
        if rank != 0:  # it is there already
            job.programs.ran(rank, METRIC)
        job.state.ranks[rank].compilations.ran[METRIC.where] = METRIC
        job.state.ranks[rank].membership.joining_at = job.state.ranks[rank].membership.joined_at = 1
    job.programs.ran(0, HELD, held=True)
    job.wait(3)
    return job


def test_a_rank_is_not_held_for_good() -> None:
    job = held_job()
    assert job.wait(6) == []
    assert job.watch.take_released() == {}
    assert look(job, "result", some=0) == [
        "rank 0 has waited 10 s before program #4 jit(held) at train.py:20 for ranks 1-2, "
        "and now runs it unverified"
    ]
    assert job.watch.take_released() == {"h": {0}}
    assert job.watch.take_released() == {}


SITE = "/v/lib/python3.11/site-packages"
CALLS = {
    "result": f"{SITE}/jax/_src/array.py:642:_value",
    "barrier": f"{SITE}/jax/_src/distributed.py:9:wait_at_barrier",
    "loading": "/usr/lib/python3.11/queue.py:171:get",
}


def stacks(kind: str, line: str = "train.py:12") -> list[Stack]:
    """Of ranks 1 and 2, in the user's function f."""
    frames = (frame.rsplit(":", 2) for frame in (CALLS[kind], f"/me/{line}:f"))
    lines = (f'  File "{file}", line {number} in {name}\n' for file, number, name in frames)
    text = "Stack (most recent call first):\n" + "".join(lines)
    return [Stack(rank, "h", 70 + rank, text) for rank in (1, 2)]


def look(job: Job, kind: str, cpu_s: float = 0.0, *, some: int = 2) -> list[str]:
    """The hosts answer where the ranks are, and what they have used; what is said."""
    while not job.watch.take_stack_request():
        job.wait(LOOK_EVERY_S)
    job.state.used(Usage(tuple(RankUsage(rank, cpu_s, 1, 0.0) for rank in ALL)), job.now)
    job.watch.stacks_came(stacks(kind)[:some], job.now)
    return job.watch.take_notes()


def test_ranks_that_wait_for_one_another_run_different_programs() -> None:
    """Rank 0 has skipped `metric`: the others are in it, which they cannot leave without it."""
    job = held_job()
    job.wait(6)
    assert [look(job, "result") for _ in range(4)] == [
        [
            "rank 0 has waited 10 s before program #4 jit(held) at train.py:20 for ranks 1-2, "
            "in jit(metric) at train.py:12"
        ],
        *([], [], []),
    ]
    assert job.watch.take_released() == {}
    assert divergence_lines(job.programs) == [
        "program #4: rank 0 train.py:20 jit(held) · ranks 1-2 ran train.py:12 jit(metric) f32[4] "
        "again instead"
    ]


@pytest.mark.parametrize(("kind", "some"), [("barrier", 2), ("loading", 2), ("result", 1)])
def test_for_ranks_that_wait_otherwise_nobody_is_held(kind: str, some: int) -> None:
    """What they wait for may be what the program that is held does; or nothing is known."""
    job = held_job()
    job.wait(6)
    [note] = look(job, kind, some=some)
    assert note.endswith("for ranks 1-2, and now runs it unverified")
    assert job.watch.take_released() == {"h": {0}}


def test_a_long_program_is_waited_for() -> None:
    """Whoever computes will get there."""
    job = held_job()
    job.wait(6)
    for number in range(8):
        look(job, "result", 5.0 * number)
    assert job.programs.divergence is None
    assert job.watch.take_released() == {}
    for rank in (1, 2):
        job.programs.ran(rank, HELD, held=True)
    assert job.watch.take_released() == {"h": {0, 1, 2}}


def test_a_rank_is_held_longer_while_the_others_compile() -> None:
    job = held_job(missing_compile=True)
    job.wait(60)
    assert job.watch.take_released() == {}
    assert len(job.wait(60)) == 1
    assert job.watch.take_released() == {"h": {0}}


def test_all_are_let_go_when_the_user_ends_the_job() -> None:
    job = held_job()
    job.state.stopped(interrupted(2), 1.0)
    assert job.watch.take_released() == {"h": {0}}
    late = hook_messages.Program("jit_late", "l", None, (), "", held=True)
    take(job.state, FromHook(1, late), 2.0)
    assert job.watch.take_released() == {"l": {1}}


def test_none_is_let_go_when_a_rank_has_failed() -> None:
    """They would only lose their peer."""
    job = held_job()
    take(job.state, FromHook(1, hook_messages.Failed(1, joined=True)), 2.0)
    late = hook_messages.Program("jit_late", "l", None, (), "", held=True)
    take(job.state, FromHook(2, late), 2.0)
    assert job.watch.take_released() == {}

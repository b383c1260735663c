"""When a job is looked at for ranks that wait for others: seldom, and not at all while it moves."""

import re
from itertools import pairwise

import pytest
from records import run_of, say

from mcjax_launch.explain.announcer import AFTER_S, Announcer, compute_repeat_delay
from mcjax_launch.explain.explanations import format_advice
from mcjax_launch.explain.hang_watch import HangWatch, HostQuery
from mcjax_launch.explain.rules import format_lines
from mcjax_launch.journal.facts import Finding, Polled, Stack
from mcjax_launch.wire import hook_messages as hook
from mcjax_launch.wire.frames import Data
from mcjax_launch.wire.messages import Exited, GpuUse, RankOnGpu, RankUsage, Usage
from mcjax_launch.wire.source_lines import ALL_THREADS, MAIN_THREAD

SITE = "/v/lib/python3.11/site-packages"
AT = "Stack (most recent call first):\n"
BLOCKED = (
    f'{AT}  File "{SITE}/jax/_src/array.py", line 6 in _value\n  File "/me/train.py", line 9 in f\n'
)
LOADING = f'{AT}  File "/me/data.py", line 41 in load_batch\n'
CALL = hook.Joining("h:1", 2, 0, "train.py:3")
ADVICE = "--stall-timeout 10m would end a job without progress"


class Watched:
    """A job of two ranks that have joined at 0, and the watch over it."""

    def __init__(self, *, joins: bool = True) -> None:
        self.state = run_of(2)
        self.watch = HangWatch(self.state, Announcer(self.state), 0.0)
        self.now = 0.0
        self.used = {0: 0.0, 1: 0.0}
        self.waits = 0  # of each main thread, from one answer to the next
        self.stacks = {0: BLOCKED, 1: LOADING}
        self.blocked = {0: "", 1: ""}
        self.others = {0: "", 1: ""}
        self.asked: list[tuple[float, HostQuery]] = []
        self.lines: list[str] = []
        self.end: Finding | None = None
        self.spent = {0: 0.0, 1: 0.0}  # by other threads than the main ones
        for rank in (0, 1) if joins else ():
            say(self.state, rank, CALL, 0.0)
            say(self.state, rank, hook.Joined(rank), 0.0)

    def until(self, end: float, *, moves: tuple[int, ...] = ()) -> list[tuple[float, HostQuery]]:
        """Let time go by; these ranks move meanwhile. What was asked, and when."""
        before = len(self.asked)
        while (deadline := self.watch.deadline) is not None and deadline <= end:
            for rank in moves:
                self.used[rank] += deadline - self.now + 0.1
            self.now = max(self.now, deadline)
            ask = self.watch.expire(self.now)
            if ask is not None:
                self.asked.append((self.now, ask))
                self._answer(ask)
        for rank in moves:
            self.used[rank] += end - self.now
        self.now = end
        return self.asked[before:]

    def _answer(self, ask: HostQuery) -> None:
        self.now += 0.1
        if ask is HostQuery.USAGE:
            waits = self.waits * len(self.asked)
            ranks = (
                RankUsage(rank, used + self.spent[rank], 1, used, waits)
                for rank, used in self.used.items()
            )
            self.state.on_usage(Usage(tuple(ranks)), self.now)
        else:
            stacks = [
                Stack(rank, "h", 7, text, blocked=self.blocked[rank], others=self.others[rank])
                for rank, text in self.stacks.items()
            ]
            found = self.watch.judge_stacks(stacks, self.now)
            if isinstance(found, HostQuery):
                self.asked.append((self.now, found))
                self._answer(found)
            elif found and found[0].is_certain:
                self.end = found[0]
            elif found:
                self.lines += [*format_lines(found), ADVICE]


ALL = f"{ALL_THREADS}\n{MAIN_THREAD}\n"
STUCK = f'  File "{SITE}/jax/experimental/multihost_utils.py", line 6 in f\n{BLOCKED[len(AT) :]}'
LEFT = f'  File "{SITE}/jax/_src/distributed.py", line 238 in shutdown\n'
LOADER = 'Thread 0x2 (most recent call first):\n  File "/me/data.py", line 9 in load\n'


def deadlocked(*, thread: str = "") -> Watched:
    """One of two ranks has finished, the other one waits for it in a collective on CPU."""
    watched = Watched()
    say(watched.state, 0, hook.Compiling("jit_f", "", "cpu"), 0.0)
    say(watched.state, 0, hook.Compiled(), 0.0)
    say(watched.state, 1, hook.Leaving(), 0.0)
    watched.stacks = {0: ALL + STUCK, 1: ALL + LEFT + thread}
    return watched


def test_a_deadlock_ends_the_job_once_all_threads_are_known() -> None:
    watched = deadlocked()
    asked = [ask for _, ask in watched.until(300.0)]
    assert asked[-2:] == [HostQuery.STACKS, HostQuery.ALL_STACKS]
    assert watched.lines == []
    assert watched.end is not None
    assert re.fullmatch(
        r"rank 0 has waited 3\d s in \w+\(\) at train.py:9 for rank 1, which has finished and is in "
        "JAX's exit barrier, so the job can never go on",
        watched.end.words,
    )
    assert (watched.end.ranks, watched.end.is_final) == ((1,), False)
    assert watched.watch.deadline is None


def test_rank_that_is_gone_ends_the_job_soon() -> None:
    watched = Watched()
    frame = f"  File \"{SITE}/jaxlib/coordination_service\", line 1 in wait_at_barrier('x')\n"
    watched.stacks = {0: ALL + frame + '  File "/me/train.py", line 9 in f\n'}
    watched.until(100.0, moves=(0, 1))
    watched.state.on_data(Data(1, 1, b""), 100.0)
    watched.state.on_exited(Exited(1, 0, (), None, 0.0, 0), 100.0)
    watched.until(125.0)
    assert watched.end is not None
    assert watched.end.words.endswith("for rank 1, which exited with 0, so the job can never go on")


@pytest.mark.parametrize("doubt", ["a thread", "other work"])
def test_doubtful_deadlock_is_reported_without_ending_the_job(doubt: str) -> None:
    """What a rank computes in C++, however little, may be what the other one waits for."""
    watched = deadlocked(thread=LOADER if doubt == "a thread" else "")
    while watched.now < 200.0:
        watched.until(watched.now + 1.0)
        watched.spent[1] += 0.02 if doubt == "other work" else 0.0
    assert watched.end is None
    [first, *_] = watched.lines
    assert first.startswith("rank 0 has waited ") and first.endswith(" in JAX's exit barrier")


def test_job_without_jax_is_never_polled() -> None:
    watched = Watched(joins=False)
    watched.state.on_data(Data(0, 1, b""), 1.0)
    assert watched.watch.deadline is None


def test_single_rank_is_never_polled() -> None:
    watched = Watched()
    watched.state.num_processes = 1
    assert watched.watch.deadline is None


def test_printing_rank_is_not_polled() -> None:
    """For half a minute: then it might be that one rank prints and the others wait for it."""
    watched = Watched()
    for at in range(1, 30):
        watched.state.on_data(Data(1, 1, b""), at)
        assert watched.until(at + 0.99, moves=(0, 1)) == []


def test_silent_but_moving_rank_is_polled_ever_less_often() -> None:
    watched = Watched()
    asked = watched.until(1000, moves=(0, 1))
    assert {ask for _, ask in asked} == {HostQuery.USAGE}
    pauses = [round(after - at) for (at, _), (after, _) in pairwise(asked)]
    assert asked[0] == (5.0, HostQuery.USAGE)
    assert pauses[:3] == [30, 60, 120]
    assert set(pauses[3:]) <= {120, 121}
    assert watched.lines == []


@pytest.mark.parametrize(("waits", "asked"), [(3, HostQuery.STACKS), (4, HostQuery.USAGE)])
def test_repeatedly_waiting_main_thread_counts_as_moving(waits: int, asked: HostQuery) -> None:
    watched = Watched()
    watched.waits = waits
    assert watched.until(40)[-1][1] is asked


def test_rank_that_waits_for_a_missing_rank_is_reported() -> None:
    watched = Watched()
    watched.until(40)
    assert [(round(at), ask) for at, ask in watched.asked] == [
        (5, HostQuery.USAGE),
        (36, HostQuery.USAGE),
        (36, HostQuery.STACKS),
    ]
    wait, advice = watched.lines
    assert wait == (
        "rank 0 has waited 31 s at train.py:9 for rank 1, which is in load_batch at data.py:41"
    )
    assert advice.endswith(ADVICE)


JOINING = (
    f'{AT}  File "/usr/lib/python3.11/threading.py", line 6 in join\n'
    '  File "/me/train.py", line 9 in f\n'
)
AT_BARRIER = (
    f"Thread 0x7f:\n  File \"{SITE}/jaxlib/coordination_service\", line 3 in wait_at_barrier('0')\n"
    f'  File "{SITE}/orbax/multihost.py", line 3 in _fn\n'
)


def test_joined_thread_must_stand_still_too() -> None:
    """It may pass one barrier after the other, or the same in each step."""
    watched = Watched()
    watched.stacks[0], watched.others[0] = JOINING, AT_BARRIER + "Switches of 0x7f 1\n"
    watched.until(45)
    watched.others[0] = AT_BARRIER.replace("'0'", "'1'") + "Switches of 0x7f 1\n"
    watched.until(80)
    watched.others[0] = AT_BARRIER.replace("'0'", "'1'") + "Switches of 0x7f 2\n"
    watched.until(110)
    assert [ask for _, ask in watched.asked].count(HostQuery.STACKS) == 3
    assert watched.lines == []
    watched.until(140)
    wait, hint, advice = watched.lines
    assert wait.startswith(
        "rank 0 has waited 31 s at the barrier '1' in a thread that the main thread waits for "
    )
    assert hint.startswith("hint: when saving, Orbax's processes wait for one another")
    assert advice.endswith(ADVICE)
    watched.until(200)
    assert len(watched.lines) == 5  # the hint is not repeated


@pytest.mark.parametrize("survives", [True, False])
def test_cpu_collective_timeout_flag_is_mentioned_once(*, survives: bool) -> None:
    watched = Watched()
    watched.state.survives = survives
    say(watched.state, 0, hook.Compiling("jit_step", "train.py:9", "cpu"), 0.0)
    say(watched.state, 0, hook.Compiled(), 0.0)
    watched.state.on_exited(Exited(1, -9, (), None, 0.0, 0), 1.0)
    watched.until(200)
    hints = [line for line in watched.lines if "--xla_cpu_collective_timeout_seconds" in line]
    assert len(hints) == int(survives)


def test_hang_is_reported_again_after_twice_the_time() -> None:
    watched = Watched()
    watched.until(2000)
    told = [line for line in watched.lines if "has waited" in line]
    assert [line.partition(" waited ")[2].partition(" at ")[0] for line in told] == [
        "31 s", "61 s", "2 min", "4 min", "8 min", "16 min", "32 min"
    ]  # fmt: skip
    assert len(watched.asked) <= 24


def test_printing_rank_that_delays_another_is_reported() -> None:
    watched = Watched()
    for at in range(1, 100):
        watched.state.on_data(Data(1, 1, b""), at)
        watched.until(at + 0.99, moves=(1,))
    assert watched.lines[0].startswith("rank 0 has waited 3")
    assert len([line for line in watched.lines if "has waited" in line]) <= 2


def test_ranks_waiting_for_something_else_are_not_reported() -> None:
    watched = Watched()
    watched.stacks[0] = LOADING
    asked = watched.until(1000)
    assert watched.lines == []
    assert len([ask for _, ask in asked if ask is HostQuery.STACKS]) <= 10


@pytest.mark.parametrize(
    ("began", "ended", "told"), [(2.0, 40.0, False), (39.0, 40.0, True), (18.0, 20.0, True)]
)
def test_long_compilation_extends_the_patience(began: float, ended: float, *, told: bool) -> None:
    """Just after it the rank runs what it has compiled, perhaps without JAX's code on its stack."""
    watched = Watched()
    watched.until(began, moves=(1,))
    say(watched.state, 1, hook.Compiling("jit_f", "data.py:41", "cpu"), began)
    watched.until(ended, moves=(1,))
    say(watched.state, 1, hook.Compiled(), ended)
    watched.until(ended + 29, moves=(1,))
    assert bool(watched.lines) == told
    watched.until(110, moves=(1,))
    assert watched.lines[0].startswith("rank 0 has waited ")


@pytest.mark.parametrize("platform", ["cpu", "gpu"])
def test_busy_processors_count_as_progress_only_on_cpu(platform: str) -> None:
    """On an accelerator they prove nothing: threads may spin."""
    watched = Watched()
    for rank in (0, 1):
        say(watched.state, rank, hook.Compiling("jit_f", "train.py:9", platform), 0.0)
        say(watched.state, rank, hook.Compiled(), 0.0)
    used = watched.state.on_usage

    def spinning(usage: Usage, at: float) -> None:
        used(
            Usage(tuple(RankUsage(rank_usage.rank, at, 1, 0.0, 1) for rank_usage in usage.ranks)),
            at,
        )

    watched.state.on_usage = spinning  # type: ignore[method-assign]
    watched.until(60)
    assert bool(watched.lines) == (platform == "gpu")


class OnGpus(Watched):
    """Both ranks compile for a GPU, are asked where they are, and are busy all the time."""

    def __init__(self, *, runs: bool = False) -> None:
        super().__init__(joins=False)
        self.runs = runs
        for rank in (0, 1):
            say(self.state, rank, CALL, 0.0)
            say(self.state, rank, hook.Joined(rank), 0.0)
            say(self.state, rank, hook.Compiling("jit_f", "train.py:9", "gpu"), 0.0)
            say(self.state, rank, hook.Compiled(), 0.0)

    def answer(self, *ranks: int) -> None:
        for rank in ranks:
            self.state.ranks[rank].main_thread.silent_since = None

    def _answer(self, ask: HostQuery) -> None:
        if ask is HostQuery.USAGE:
            self.used = dict.fromkeys(self.used, self.now)
            self.state.on_polled(Polled((0, 1)), self.now)
            if self.runs:
                self.answer(0, 1)
        super()._answer(ask)


def test_rank_without_python_activity_waits_on_accelerators() -> None:
    watched = OnGpus()
    watched.until(40)
    assert watched.lines[0].startswith("rank 0 has waited 3")


@pytest.mark.parametrize("blocked", ["hrtimer_nanosleep", "syscall 230", ""])
def test_polling_main_thread_waits_on_accelerators_if_blocked(blocked: str) -> None:
    """NCCL's usleep(1) below a line of the user's; a sleep of the user's own uses no processor."""
    watched = OnGpus()
    watched.stacks[0] = f'{AT}  File "/me/train.py", line 30 in f\n'
    watched.blocked[0] = blocked
    watched.until(40)
    assert bool(watched.lines) == bool(blocked)


@pytest.mark.parametrize(("runs", "places"), [(False, 1), (True, 2)])
def test_long_step_on_accelerators_is_no_hang(*, runs: bool, places: int) -> None:
    """All at one place are in a long step; a rank that runs Python moves, wherever it is."""
    watched = OnGpus(runs=runs)
    watched.stacks[1] = BLOCKED if places == 1 else LOADING
    watched.until(1000)
    assert watched.lines == []


SPINS, WORKS, IDLES = (100, 0, 128), (99, 9, 568), (0, 0, 117)


def on_gpus_that(*doing: tuple[float, float, float]) -> OnGpus:
    """A job whose ranks each have a GPU; what it does, in percentages and watts."""
    watched = OnGpus()
    record = watched.state.on_usage
    uses = [
        GpuUse(n, "H100", 1, 2, *values, 700, (RankOnGpu(n, 1, *values[:2]),))
        for n, values in enumerate(doing)
    ]
    watched.state.on_usage = lambda usage, at: record(  # type: ignore[method-assign]
        usage.copy_with(gpus=tuple(uses)), at
    )
    return watched


def test_ranks_whose_gpus_work_are_no_hang() -> None:
    watched = on_gpus_that(WORKS, WORKS)
    assert {ask for _, ask in watched.until(1000)} == {HostQuery.USAGE}
    assert watched.lines == []


def test_note_says_whose_gpus_wait_and_whose_are_idle() -> None:
    watched = on_gpus_that(SPINS, IDLES)
    watched.until(60)
    assert watched.lines[0].startswith("rank 0 has waited 3")
    assert watched.lines[1] == "rank 0's GPU waits in a collective; rank 1's is idle"


def test_rank_whose_gpu_works_while_others_wait_is_named() -> None:
    watched = on_gpus_that(SPINS, WORKS)
    watched.until(1000)
    told = [line for line in watched.lines if "GPU" in line]
    assert 1 < len(told) < 7
    assert re.fullmatch(
        r"rank 0's GPU waits in a collective; rank 1's has been busy for [345]\d s "
        r"\(last compiled jit\(f\) at train.py:9\)",
        told[0],
    )


def test_answering_rank_is_no_stall_on_accelerators() -> None:
    """It may have moved until it is asked again."""
    watched, active_at = OnGpus(), []
    for at, answers in ((2.0, (1,)), (4.0, ()), (6.0, (0, 1)), (8.0, ()), (10.0, ())):
        watched.state.on_polled(Polled((0, 1)), at)
        watched.answer(*answers)
        active_at.append(watched.state.activity.active_at)
    assert active_at == [2.0, 4.0, 4.0, 8.0, 8.0]


def test_wait_in_initialize_is_timed_to_the_second() -> None:
    watched = Watched(joins=False)
    say(watched.state, 0, CALL, 10.0)
    asked = watched.until(41)
    assert asked[-1][1] is HostQuery.STACKS
    assert 40 <= asked[-1][0] < 41
    [wait, _] = watched.lines
    assert re.match(r"rank 0 has waited 3[01] s in initialize\(\) at train.py:3 for rank 1, ", wait)
    assert wait.endswith("which has not called it and is in load_batch at data.py:41")


def test_watch_ends_with_the_job() -> None:
    watched = Watched()
    watched.state.record_failure(watched.state.ranks[1], 1.0)
    assert watched.until(100) == []
    assert watched.watch.deadline is None


def test_stall_limit_of_the_job_is_named() -> None:
    assert format_advice(None, "") == ADVICE
    assert format_advice(8.7, "") == "--stall-timeout ends the job in 9 s"


@pytest.mark.parametrize(
    ("lasted", "delay"), [(0.0, 1), (0.99, 1), (1.0, 2), (1.99, 2), (2.0, 4), (5.0, 8)]
)
def test_what_lasts_is_said_again_when_it_has_lasted_twice_as_long(
    lasted: float, delay: int
) -> None:
    assert compute_repeat_delay(lasted * AFTER_S) == delay * AFTER_S

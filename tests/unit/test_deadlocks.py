"""Which waits last for ever: the table of docs/failures.md, and what makes a wait doubtful."""

from collections.abc import Callable

import pytest
from records import end_of, run_of, say

from mcjax_launch.diagnosis.findings.waits import Wait, may_act
from mcjax_launch.diagnosis.sightings import Stack
from mcjax_launch.diagnosis.view import Positions, View
from mcjax_launch.kernel.wire import hook_messages as hook
from mcjax_launch.kernel.wire.source_lines import is_one_call
from mcjax_launch.runs.state import RunState

SITE = "/v/lib/python3.11/site-packages"
CALLS = {
    "the program": [f"{SITE}/jax/_src/array.py:642:_value", "/me/train.py:12:f"],
    "all processes": [f"{SITE}/jax/experimental/multihost_utils.py:5:g", "/me/train.py:30:f"],
    "a barrier": [
        f"{SITE}/jaxlib/coordination_service:1:wait_at_barrier('x')",
        "/me/train.py:31:f",
    ],
    "Python": ["/me/data.py:41:load"],
    "the exit barrier": [
        f"{SITE}/jax/_src/distributed.py:238:shutdown",
        f"{SITE}/jax/_src/api.py:2899:clean_up",
    ],
    "shutdown()": [f"{SITE}/jax/_src/distributed.py:238:shutdown", "/me/train.py:40:f"],
    "an exit handler": ["/me/save.py:7:save"],
}
THREAD = 'Thread 0x7f (most recent call first):\n  File "{}", line 3 in g\n'


def stack(rank: int, where: str, *threads: str, source: str = "") -> Stack:
    """The stacks of all threads of a rank: those of the others run in these files."""
    frames = ('  File "{}", line {} in {}\n'.format(*call.rsplit(":", 2)) for call in CALLS[where])
    text = "".join(map(THREAD.format, threads))
    text += "Current thread 0x1 (most recent call first):\n" + "".join(frames)
    return Stack(
        rank, "h", 7, text + (f"    {source}\n" if source else ""), blocked="futex_do_wait"
    )


def job(platform: str = "cpu", flags: str = "", ranks: tuple[int, ...] | None = None) -> RunState:
    """Three ranks that have run a program that spans these at train.py:12."""
    state = run_of(3)
    program = hook.Program("jit_step", "f", ranks, (), "train.py:12", platform=platform)
    for rank in range(3):
        settings = {"XLA_FLAGS": flags}
        say(state, rank, hook.Joining("h:1", 3, rank, "train.py:3", settings=settings), 1.0)
        say(state, rank, hook.Joined(rank), 2.0)
        say(state, rank, hook.ProcessNumber(platform, rank), 2.0)
        say(state, rank, hook.Compiling("jit_step", "train.py:12", platform), 3.0)
        say(state, rank, hook.Compiled(), 3.0)
        if ranks is None or rank in ranks:
            say(state, rank, program, 4.0)
    return state


def wait(state: RunState, *stacks: Stack, moves: tuple[int, ...] = ()) -> Wait | None:
    still = {run.process_id: 10.0 for run in state.running if run.process_id not in moves}
    return View(state, 50.0, Positions(stacks, still)).wait


def verdict(found: Wait | None) -> str:
    return "none" if found is None else "deadlock" if found.is_deadlock else "note"


def leaves(state: RunState, rank: int) -> None:
    say(state, rank, hook.Leaving(), 9.0)


def exits(state: RunState, rank: int) -> None:
    state.exited(end_of(rank, 0), 9.0)


def refused(state: RunState, rank: int) -> None:
    del state.ranks[rank].membership.joined_at
    say(state, rank, hook.NotJoined("ValueError", "x"), 9.0)


#: What rank 2 does, while it is not where the other ranks wait for it: its stack, and its reports.
DOES: dict[str, tuple[str | None, Callable[[RunState, int], None] | None]] = {
    "has finished": ("the exit barrier", leaves),
    "calls shutdown()": ("shutdown()", leaves),
    "exited with 0": (None, exits),
    "is in an exit handler": ("an exit handler", leaves),
    "is in Python": ("Python", None),
    "is in another collective": ("all processes", None),
    "is at a barrier": ("a barrier", None),
}
#: The same for ranks 0 and 1, and what that means for each of the above.
TABLE = {
    "the program": ["deadlock", "deadlock", "deadlock", "note", "note", "note", "note"],
    "all processes": ["deadlock", "deadlock", "deadlock", "note", "note", "none", "note"],
    "a barrier": ["note", "note", "note", "note", "note", "note", "none"],
    "the exit barrier": ["none", "none", "none", "none", "note", "deadlock", "note"],
}
PAIRS = [(where, does, row[at]) for where, row in TABLE.items() for at, does in enumerate(DOES)]


def found_in(state: RunState, where: str, does: str, **how: tuple[int, ...]) -> Wait | None:
    other, reports = DOES[does]
    if where == "the exit barrier":
        leaves(state, 0)
        leaves(state, 1)
    if reports is not None:
        reports(state, 2)
    last = [stack(2, other)] if other is not None else []
    return wait(state, stack(0, where), stack(1, where), *last, **how)


@pytest.mark.parametrize(("where", "does", "expected"), PAIRS)
def test_who_waits_where_for_one_that_does_what(where: str, does: str, expected: str) -> None:
    assert verdict(found_in(job(), where, does)) == expected


def test_two_that_wait_in_initialize() -> None:
    """Ends at once where one has exited: tests/unit/test_absent_ranks.py."""
    state = run_of(3)
    for rank in (0, 1):
        say(state, rank, hook.Joining("h:1", 3, rank, "train.py:3"), 1.0)
    assert verdict(wait(state, stack(2, "Python"))) == "note"


def test_two_that_compile() -> None:
    """JAX gives up such a wait by itself."""
    state = job()
    for rank in (0, 1):
        say(state, rank, hook.Compiling("jit_g", "train.py:50", "cpu"), 5.0)
        state.ranks[rank].compilations.used(0.0, 100.0)
    leaves(state, 2)
    assert verdict(wait(state, stack(2, "the exit barrier"))) == "note"


@pytest.mark.parametrize("state", [
    job("gpu"),  # a device may be busy
    job(flags="--xla_cpu_collective_timeout_seconds=60"),  # JAX ends that itself
], ids=["on GPUs", "with a limit"])  # fmt: skip
def test_a_wait_that_may_end(state: RunState) -> None:
    assert verdict(found_in(state, "the program", "has finished")) == "note"


def test_ranks_on_several_hosts() -> None:
    """The network between them may be down, and what has been sent off come later."""
    state = job()
    state.hosts = 2
    assert verdict(found_in(state, "the program", "has finished")) == "note"
    assert verdict(found_in(state, "the program", "exited with 0")) == "deadlock"
    state = job()
    state.hosts = 2
    for rank in (0, 1):
        say(state, rank, hook.Program("jit_more", "g", None, (), "train.py:30"), 5.0)
    assert verdict(found_in(state, "all processes", "has finished")) == "deadlock"


def test_ranks_that_may_go_on_without_one() -> None:
    state = job()
    state.survives = True
    assert verdict(found_in(state, "the program", "has finished")) == "note"
    state = job()
    call = hook.Joining("h:1", 3, 0, "train.py:3", recoverable=True)
    state.ranks[0].membership.call = call
    assert verdict(found_in(state, "the program", "has finished")) == "note"


def test_a_third_rank_that_is_elsewhere() -> None:
    """It may do something that nobody else can know of."""
    state = job(ranks=(0, 2))
    leaves(state, 2)
    program, python, gone = (
        stack(0, "the program"),
        stack(1, "Python"),
        stack(2, "the exit barrier"),
    )
    assert verdict(wait(state, program, python, gone)) == "note"
    leaves(state, 1)
    assert verdict(wait(state, program, stack(1, "the exit barrier"), gone)) == "deadlock"


@pytest.mark.parametrize("moves", [(0,), (2,)])
def test_a_rank_that_moves(moves: tuple[int, ...]) -> None:
    assert verdict(found_in(job(), "the program", "has finished", moves=moves)) != "deadlock"


@pytest.mark.parametrize(("source", "expected"), [
    ("x = step(x)", "deadlock"),
    ("x = step(", "deadlock"),
    ("loss = float(step(x))", "deadlock"),
    ("writer.write(step(x)).result()", "note"),
    ("if step(x):", "note"),
    ("", "note"),
])  # fmt: skip
def test_a_line_from_which_c_code_is_called(source: str, expected: str) -> None:
    """Nobody sees which of its calls waits."""
    state = job()
    leaves(state, 2)
    CALLS["a line"] = CALLS["the program"][1:]
    lines = [stack(rank, "a line", source=source) for rank in (0, 1)]
    assert verdict(wait(state, *lines, stack(2, "the exit barrier"))) == expected
    assert is_one_call(source) == (expected == "deadlock")


@pytest.mark.parametrize(("file", "active"), [
    ("", False),
    ("/usr/lib/python3.11/threading.py", False),
    (f"{SITE}/tqdm/_monitor.py", False),
    ("/me/loader.py", True),
    (f"{SITE}/jax/_src/callback.py", True),  # a callback of the program's
    (f"{SITE}/orbax/checkpoint/x.py", True),
])  # fmt: skip
@pytest.mark.parametrize("rank", [0, 2])
def test_what_other_threads_may_do(rank: int, file: str, *, active: bool) -> None:
    state = job()
    where = {0: "the program", 1: "the program", 2: "the exit barrier"}
    stacks = {one: stack(one, at) for one, at in where.items()}
    stacks[rank] = stack(rank, where[rank], *([file] if file else []))
    assert may_act(state, stacks.values()) == active
    assert may_act(state, list(stacks.values())[:2])  # of rank 2 nothing is known
    cut = stacks[rank].text.replace("Current", "...\nCurrent")
    stacks[rank] = Stack(rank, "h", 7, cut)
    assert may_act(state, stacks.values())
    stacks[rank] = Stack(rank, "h", 7, cut.replace("Current thread 0x1", "Stack"))
    assert may_act(state, stacks.values())  # of its main thread alone

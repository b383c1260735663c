"""Who waits for whom, by stacks and by what hooks have reported, and whether for ever: rows."""

from collections.abc import Sequence
from typing import Any

import pytest
from told import Event, Launched, Told, ends, join, launch, said

from mcjax_launch.explain.view import Positions, View
from mcjax_launch.explain.waits.deadlock import may_act
from mcjax_launch.explain.waits.wait import Wait, find_wait
from mcjax_launch.explain.waits.words import describe_wait
from mcjax_launch.journal.facts import Stack
from mcjax_launch.journal.sequences import ProgramName, ProgramSequences
from mcjax_launch.journal.state import RunState
from mcjax_launch.wire import hook_messages as hook
from mcjax_launch.wire.source_lines import ALL_THREADS, MAIN_THREAD, is_one_call
from mcjax_launch.wording import format_rough_duration

SITE = "/v/lib/python3.11/site-packages"
CALLS = {
    "jax": [f"{SITE}/jax/_src/array.py:642:_value", f"{SITE}/jax/_src/array.py:3:__float__"],
    "all processes": [f"{SITE}/jax/experimental/multihost_utils.py:165:sync_global_devices"],
    "a barrier": [f"{SITE}/jaxlib/coordination_service:1:wait_at_barrier('x')"],
    "a barrier of some": [f"{SITE}/jaxlib/coordination_service:1:wait_at_barrier('x', ...)"],
    "tracing": [f"{SITE}/numpy/core.py:3:f", f"{SITE}/jax/_src/pjit.py:3:trace_to_jaxpr_dynamic"],
    "shutdown": [f"{SITE}/jax/_src/distributed.py:238:shutdown"],
    "queue": ["/usr/lib/python3.11/queue.py:171:get"],
    "pdb": ["/usr/lib/python3.11/cmd.py:126:cmdloop", "/usr/lib/python3.11/pdb.py:1:interaction"],
    "server": ["/usr/lib/python3.11/socketserver.py:235:serve_forever"],
    "grpc": [
        "/usr/lib/python3.11/threading.py:359:wait",
        f"{SITE}/grpc/_server.py:1470:wait_for_termination",
    ],
    "asyncio": [
        "/usr/lib/python3.11/selectors.py:468:select",
        "/usr/lib/python3.11/asyncio/base_events.py:1922:_run_once",
    ],
    "tensorflow": [f"{SITE}/tensorflow/data.py:3:next"],
    "own": [],
    "inline": ["/me/data.py:41:<genexpr>"],
}
STEP, DATA, FUTEX = "train.py:12", "data.py:41", "futex_do_wait"
#: The end of Python's: no line of the user's is on the stack.
EXIT_BARRIER = f"{SITE}/jax/_src/api.py:2899:clean_up"


def stack(
    rank: int, kind: str, line: str = STEP, blocked: str = "", source: str = "", **more: Any
) -> Stack:
    """A rank's, in the user's function f, with the text of its line if that is known."""
    users = line if line == EXIT_BARRIER else f"/me/{line}:f"
    lines = (
        '  File "{}", line {} in {}\n'.format(*call.rsplit(":", 2))
        for call in [*CALLS[kind], users]
    )
    text = f"{ALL_THREADS}\n{MAIN_THREAD}\n" + "".join(lines)
    text += f"    {source}\n" if source else ""
    return Stack(rank, "h", 70 + rank, text, blocked=blocked, **more)


def ranks(kind: str, *numbers: int, line: str = STEP, **how: Any) -> list[Stack]:
    return [stack(rank, kind, line, **how) for rank in numbers]


def view_of(
    state: RunState, stacks: Sequence[Stack], moves: Sequence[int] = (), busy: Sequence[int] = ()
) -> View:
    still = {run.process_id: 10.0 for run in state.running if run.process_id not in moves}
    return View(state, 50.0, Positions(stacks, still, busy))


def wait_in(state: RunState, stacks: Sequence[Stack], **how: Any) -> Wait | None:
    return find_wait(view_of(state, stacks, **how))


def line_of(view: View) -> str:
    wait = find_wait(view)
    return describe_wait(view, wait) if wait is not None else ""


# --- who waits for whom ---

WAITING = ranks("jax", 0, 1, 3)
WAITED = "ranks 0-1,3 have waited 40 s at train.py:12 for rank 2, which is in f at data.py:41"
AWAY = [*WAITING, stack(2, "queue", DATA)]
LATE = "for rank 2, which is in f at data.py:41"
LOADING = stack(2, "own", "load.py:7").text.replace("Stack", "Thread 0x7f [loader]")
STEPPING = stack(2, "jax", "load.py:7").text.replace("Stack", "Thread 0x7f [steps]")
ANOTHER = f"{WAITED}; another of its threads is in f at load.py:7"
DIED = said(2, hook.UnhandledError("loader", hook.Raised("ValueError", "ValueError: corrupt")))
QUEUED = ranks("queue", 0, 1, 2, 3, blocked=FUTEX)
NOT_IN_JAX = "all 4 ranks have stood still for 40 s, not in JAX: ranks 0-3 in f at train.py:12"
OF_ALL = [e for rank in (0, 1, 3) for e in said(rank, hook.Program("jit_step", 1, None, (), STEP))]
OF_TWO = [
    e
    for rank in (0, 1)
    for e in said(rank, hook.ProcessNumber("", rank), hook.Program("jit_step", 1, (0, 1), (), STEP))
]
GONE = "for rank 2, which has finished and is"
TWO_PLACES = [*ranks("jax", 0, 1, 2), stack(3, "all processes", "train.py:30")]
OVER = [e for rank in range(4) for e in said(rank, hook.Leaving(), hook.Left())]
ENDED = [Stack(rank, "h", 7, f"{MAIN_THREAD}\n{ALL_THREADS}\n") for rank in (1, 2, 3)]


def leave(*numbers: int) -> list[Event]:
    return [event for rank in numbers for event in said(rank, hook.Leaving())]


def compiled(rank: int, name: str, where: str, platform: str = "cpu") -> list[Event]:
    return said(rank, hook.Compiling(name, where, platform), hook.Compiled())


def threads(kind: str, source: str, others: str) -> list[Stack]:
    return [*WAITING, stack(2, kind, DATA, FUTEX, source, others=others)]


def in_thread(*numbers: int) -> list[Stack]:
    return [
        queued.copy_with(others=STEPPING) if queued.rank in numbers else queued for queued in QUEUED
    ]


Row = tuple[Sequence[Event], Sequence[Stack], str]
#: What has happened after four ranks have joined, where they stand, and what is said.
WAITS: dict[str, Row] = {
    # a rank that has not come
    "it sleeps": ([], [*WAITING, stack(2, "own", DATA, "hrtimer_nanosleep")], WAITED),
    "in a queue": ([], [*WAITING, stack(2, "queue", DATA, FUTEX)], WAITED),
    "in a library": ([], [*WAITING, stack(2, "tensorflow", DATA, FUTEX)], WAITED),
    "in Python": ([], [*WAITING, stack(2, "own", DATA)], WAITED),
    "in an expression": ([], [*WAITING, stack(2, "inline", DATA)], WAITED),
    "it traces": ([], [*WAITING, stack(2, "tracing", "model.py:4")], ""),
    "in a debugger": ([], [*WAITING, stack(2, "pdb", "train.py:40")], ""),
    "in a server": ([], [*WAITING, stack(2, "server", DATA)], WAITED.replace("in f", "in a server's loop, in f")),
    "in gRPC's server": ([], [*WAITING, stack(2, "grpc", DATA)], WAITED.replace("in f", "in a server's loop, in f")),
    "in asyncio": ([], [*WAITING, stack(2, "asyncio", DATA)], WAITED.replace("in f", "in asyncio's loop, in f")),
    "it has come": ([], ranks("jax", 0, 1, 2, 3), ""),
    "without a Python stack": ([], [*WAITING, Stack(2, "h", 72, "", '"python" is stopped')], WAITED.partition(", which")[0] + ', which shows no Python stack: "python" is stopped'),
    "it serves ranks that have finished": (leave(0, 1, 3), [stack(2, "server", DATA)], ""),
    "it serves by gRPC": (leave(0, 1, 3), [stack(2, "grpc", DATA)], ""),
    "it serves by asyncio": (leave(0, 1, 3), [stack(2, "asyncio", DATA)], ""),
    "it loads for ranks that have finished": (leave(0, 1, 3), [stack(2, "own", DATA)], f"ranks 0-1,3 have waited 49 s in JAX's exit barrier {LATE}"),
    "it compiles": (said(2, hook.Compiling("jit_loss", "train.py:7", "cpu")), [*WAITING, stack(2, "own", DATA)], ""),
    "in many places": ([], [*ranks("jax", 0, 1), stack(2, "queue", "data.py:42"), stack(3, "queue", "data.py:43")], "ranks 0-1 have waited 40 s at train.py:12 for rank 2, which is in f at data.py:42 and rank 3, which is in f at data.py:43"),
    "what it compiled last": (compiled(2, "jit_loss", "src/train.py:7"), [*ranks("all processes", 0, 1, 3), stack(2, "own", "src/train.py:41", "pipe_read")], "ranks 0-1,3 have waited 40 s in sync_global_devices() at train.py:12 for rank 2, which is in f at src/train.py:41 (last compiled jit(loss) at src/train.py:7)"),
    "it has finished": (leave(2), WAITING, f"{WAITED.partition(' for rank')[0]} {GONE} in JAX's exit barrier"),
    "it has finished, and saves": (leave(2), [*WAITING, stack(2, "queue", "save.py:7")], f"{WAITED.partition(' for rank')[0]} {GONE} in f at save.py:7"),
    "it calls shutdown()": (leave(2), [*WAITING, stack(2, "shutdown", "train.py:40")], f"{WAITED.partition(' for rank')[0]} for rank 2, which is in JAX's exit barrier, in shutdown() at train.py:40"),
    "two have finished": (leave(1, 2), ranks("jax", 0, 3), "ranks 0,3 have waited 40 s at train.py:12 for ranks 1-2, which have finished and are in JAX's exit barrier"),
    "it has exited": ([*leave(2), *ends(2)], WAITING, f"{WAITED.partition(' for rank')[0]} for rank 2, which exited with 0"),
    # threads for which a main thread waits
    "it waits for a thread": ([], threads("queue", "", LOADING), ANOTHER),
    "it waits for a lock": ([], threads("own", "with lock:", LOADING), ANOTHER),
    "it has a thread, and computes": ([], threads("own", "crunch()", LOADING), WAITED),
    "its thread is in JAX": ([], threads("queue", "", STEPPING), ""),
    "its future's thread is": ([], threads("own", "future.result()", STEPPING), ""),
    "a thread is, and it computes": ([], threads("own", "crunch()", STEPPING), WAITED),
    "all wait for threads": ([], QUEUED, ""),
    "and one thread has died": (DIED, QUEUED, NOT_IN_JAX),
    "and one serves": (DIED, [*QUEUED[:2], stack(2, "server", DATA), QUEUED[3]], ""),
    "and all threads but one are in JAX": ([], in_thread(0, 1, 3), "ranks 0-1,3 have waited 40 s at load.py:7 for rank 2, which is in f at train.py:12"),
    # in C, and perhaps in JAX: its fast path has no Python, and waits on a lock
    **{f"blocked at {at}": ([], [*ranks("own", 0, 1, 3, blocked=at), AWAY[3]], WAITED) for at in (FUTEX, "futex_wait_queue_me", "syscall 202", "syscall 98")},
    **{f"not blocked at {at!r}": ([], [*ranks("own", 0, 1, 3, blocked=at), AWAY[3]], "") for at in ("hrtimer_nanosleep", "pipe_read", "syscall 2", "")},
    **{f"may be in JAX: {line}": ([], [*ranks("own", 0, 1, 3, blocked=FUTEX, source=line), AWAY[3]], WAITED) for line in ("loss = step(x)", "state, loss = step(state, batch)")},
    "at the line of a program": (OF_ALL, [*ranks("own", 0, 1, 3, blocked=FUTEX, source="step(q.get())"), AWAY[3]], WAITED.replace("at train.py:12", "in jit(step) at train.py:12")),
    "at one, and the kernel tells nothing": (OF_ALL, [*ranks("own", 0, 1, 3), AWAY[3]], WAITED.replace("at train.py:12", "in jit(step) at train.py:12")),
    # programs of some ranks, and ranks that wait for one another
    "one of two in the mesh": (OF_TWO, [stack(0, "jax"), *ranks("queue", 1, 2, 3, line=DATA)], "rank 0 has waited 40 s in jit(step) at train.py:12 for rank 1, which is in f at data.py:41"),
    "both of the mesh": (OF_TWO, [*ranks("jax", 0, 1), *ranks("queue", 2, 3, line=DATA)], ""),
    "in two places": ([], TWO_PLACES, "ranks 0-2 at train.py:12 and rank 3 in sync_global_devices() at train.py:30 have waited 40 s for one another"),
    "in two places, on GPUs": (compiled(0, "jit_f", "", "gpu"), TWO_PLACES, ""),
    "a helper is not the rank": ([], [Stack(0, "h", 99, stack(0, "queue", "w.py:1").text, helper=True), *AWAY], WAITED),
    # after Python's end
    "they do not end": ([*OVER, *ends(0)], ENDED, "ranks 1-3 have waited 40 s after Python's end for C++ code, usually a JAX program whose result was never read"),
    "a handler of atexit's": ([*OVER, *ends(0)], ranks("own", 1, 2, 3), ""),
    "all are in the exit barrier": (leave(0, 1, 2, 3), [], ""),
}  # fmt: skip
NUMBERED = WAITED.replace("at train.py:12 for", "{} for").replace("which is", "which has {}")
#: How many programs the ranks have run; the same of a second mesh; and what is said.
COUNTED: dict[str, tuple[tuple[int, ...], Sequence[Event], Sequence[Stack], str]] = {
    "at the program's line": ((7, 9, 6, 7), [], AWAY, NUMBERED.format("in program 7, jit(step) at train.py:12,", "run 6 and is")),
    "at another line": ((7, 7, 6, 7), [], [*ranks("all processes", 0, 1, 3, line="train.py:30"), AWAY[3]], NUMBERED.format("in sync_global_devices() at train.py:30, in program 7 (jit(step) at train.py:12),", "run 6 and is")),
    "in a call of the program's line": ((7, 7, 6, 7), [], [*ranks("all processes", 0, 1, 3), AWAY[3]], NUMBERED.format("in program 7, sync_global_devices() at train.py:12,", "run 6 and is")),
    "at a barrier": ((7, 7, 6, 7), [], [*ranks("a barrier", 0, 1, 3), AWAY[3]], WAITED.replace("at train", "at the barrier 'x' at train")),
    "in the exit barrier": ((7, 7, 6, 7), leave(0, 1, 3), AWAY[3:], f"ranks 0-1,3 have waited 49 s in JAX's exit barrier {LATE}"),
    "it has run none": ((1, 1, 0, 1), [], AWAY, NUMBERED.format("in program 1, jit(step) at train.py:12,", "run none and is")),
    "it has finished": ((7, 7, 6, 7), leave(2), WAITING, f"{NUMBERED.partition(', which')[0].format('in program 7, jit(step) at train.py:12,')}, which has run 6, has finished and is in JAX's exit barrier"),
    "it has run as many": ((7, 7, 7, 7), [], AWAY, WAITED),
    "it has run more": ((7, 7, 8, 7), [], AWAY, WAITED),
    "one that waits has run as few": ((7, 6, 6, 7), [], AWAY, WAITED),
}  # fmt: skip
OWN_WAITS = [
    *("with lock:", "with self.lock, open(name):", "if ready: lock.acquire()", "loader.join()"),
    *("for batch in iter(batches.get, None):", "batch = batches.get()", "lock.acquire(timeout=9)"),
    *(
        "select.select([pipe], [], [])",
        "rows = future.result()",
        "done.wait()",
        "results.put(loss)",
    ),
]
for own in OWN_WAITS:  # so a rank that waits there is waited for, and waits for none itself
    WAITS[f"it waits itself: {own}"] = ([], [*WAITING, stack(2, "own", DATA, FUTEX, own)], WAITED)
    blocked = ranks("own", 0, 1, 3, blocked=FUTEX, source=own)
    WAITS[f"they wait themselves: {own}"] = ([], [*blocked, AWAY[3]], "")


@pytest.mark.parametrize("name", WAITS)
def test_waiting_ranks_and_missing_ranks_are_found(name: str) -> None:
    events, stacks, line = WAITS[name]
    told = Told([*join(4), *events], 4)
    assert line_of(view_of(told.state, stacks)) == line


def count_programs(state: RunState, *counts: int, last: str = "ssss") -> None:
    """Ranks have run jit(step) so often, the last time jit(step) or jit(update)."""
    sequences = state.sequences = ProgramSequences()
    for letter, name, line in (("s", "step", STEP), ("u", "update", "train.py:13")):
        sequences.names.record(ord(letter), ProgramName(f"jit({name})", line))
    for rank, (count, letter) in enumerate(zip(counts, last, strict=False)):
        if count:
            launch(state, rank, *[ord("s")] * (count - 1), ord(letter))
    sequences.compare((), 100.0, 0.0)


@pytest.mark.parametrize("name", COUNTED)
def test_program_that_a_rank_has_not_begun_is_numbered(name: str) -> None:
    counts, events, stacks, line = COUNTED[name]
    told = Told([*join(4), *events], 4)
    count_programs(told.state, *counts)
    assert line_of(view_of(told.state, stacks)) == line


TWO_CALLS = "x = step(x, batch(i))"


@pytest.mark.parametrize(("source", "counts", "platform", "is_deadlock"), [
    (TWO_CALLS, (7, 7, 6, 7), "cpu", True),
    (TWO_CALLS, (7, 7, 7, 7), "cpu", False),
    (TWO_CALLS, (6, 7, 6, 7), "cpu", False),  # what rank 0 waits for is unknown
    ("x = step(x, batches.get())", (7, 7, 6, 7), "cpu", False),
    (TWO_CALLS, (7, 7, 6, 7), "gpu", False),
])  # fmt: skip
def test_numbers_show_a_deadlock_in_a_line_with_two_calls(
    source: str, counts: tuple[int, ...], platform: str, is_deadlock: bool
) -> None:
    at_line = ranks("own", 0, 1, 3, blocked=FUTEX, source=source)
    compiling = [e for rank in range(4) for e in compiled(rank, "jit_step", STEP, platform)]
    told = Told([*join(4), *compiling, *OF_ALL, *leave(2)], 4)
    count_programs(told.state, *counts)
    wait = wait_in(told.state, [*at_line, stack(2, "shutdown", line=EXIT_BARRIER)])
    assert (wait is not None and wait.is_deadlock) == is_deadlock


@pytest.mark.parametrize(("last", "where", "is_deadlock"), [
    ("ssus", "jax", True), ("ssss", "jax", False), ("ssus", "a barrier", False), ("ssus", "queue", False),
])  # fmt: skip
def test_ranks_in_different_programs_are_in_a_deadlock(
    last: str, where: str, is_deadlock: bool
) -> None:
    compiling = [e for rank in range(4) for e in compiled(rank, "jit_step", STEP)]
    told = Told([*join(4), *compiling, *OF_ALL], 4)
    count_programs(told.state, 7, 7, 7, 7, last=last)
    wait = wait_in(told.state, [*WAITING, stack(2, where)])
    assert (wait is not None and wait.is_deadlock) == is_deadlock


@pytest.mark.parametrize(("how", "line"), [
    ({"busy": (2,)}, ""), ({"busy": (0, 1, 3)}, ""), ({"moves": (0, 1, 3)}, ""), ({"moves": (2,)}, WAITED),
])  # fmt: skip
def test_computing_or_moving_ranks_do_not_wait(how: dict[str, Any], line: str) -> None:
    assert line_of(view_of(Told(join(4), 4).state, AWAY, **how)) == line


def test_thread_wait_needs_all_ranks_to_stand_still() -> None:
    state = Told([*join(4), *DIED], 4).state
    assert wait_in(state, QUEUED, moves=(1,)) is wait_in(state, QUEUED, busy=(3,)) is None
    wait = wait_in(Told(join(4), 4).state, in_thread(0, 1, 3))
    assert wait is not None and wait.threads == ("",) * 3


@pytest.mark.parametrize(("called", "where"), [
    ("wait_at_barrier", "at the barrier 'save.0'"),
    ("blocking_key_value_get", "in blocking_key_value_get('save.0')"),
])  # fmt: skip
@pytest.mark.parametrize("elsewhere", ["queue", "jax"])
def test_orbax_thread_at_a_barrier_waits(called: str, where: str, elsewhere: str) -> None:
    """It waits for the others, where these wait for threads as where JAX blocks them."""
    calls = (
        f"{SITE}/jaxlib/coordination_service:3:{called}('save.0')",
        f"{SITE}/orbax/multihost.py:3:_fn",
    )
    lines = ('  File "{}", line {} in {}\n'.format(*call.rsplit(":", 2)) for call in calls)
    thread = "Thread 0x7f [save]:\n" + "".join(lines) + "Switches of 0x7f 1234\n"
    saves = stack(0, "queue", blocked=FUTEX, others=thread)
    view = view_of(Told(join(2), 2).state, [saves, stack(1, elsewhere, "train.py:30")])
    wait = find_wait(view)
    assert wait is not None and wait.with_orbax
    assert wait.threads == ("Switches of 0x7f 1234",)
    where += " in a thread that the main thread waits for in f at train.py:12"
    assert line_of(view) == {
        "queue": f"rank 0 has waited 40 s {where} for rank 1, which is in f at train.py:30",
        "jax": f"rank 0 {where} and rank 1 at train.py:30 have waited 40 s for one another",
    }[elsewhere]  # fmt: skip


def test_wait_for_a_survived_rank_is_found() -> None:
    state = Told([*join(4), *ends(2, -9)], 4, survives=True).state
    where = "ranks 0-1,3 have waited 40 s at train.py:12 for rank 2, which"
    assert line_of(view_of(state, WAITING)) == f"{where} has failed"


def test_ranks_of_another_launcher_are_named_by_host() -> None:
    state = Told(join(2), 2, num_processes=4).state
    waited = "ranks 0-1 have waited 40 s at train.py:12 for ranks of other launchers"
    assert line_of(view_of(state, WAITING[:2])) == waited
    state = Told(join(4), 4, hosts=("a", "b", "gpu02", "c")).state
    line = line_of(view_of(state, AWAY))
    assert line.endswith("for rank 2 on gpu02, which is in f at data.py:41")


def test_rank_with_a_failed_initialize_is_waited_for() -> None:
    calls = [e for rank in (0, 1) for e in said(rank, hook.Joining("h:1", 2, rank, "train.py:3"))]
    refused = said(1, hook.NotJoined("ValueError", "no {address}"))
    assert line_of(view_of(Told([*calls, *refused], 2).state, [stack(1, "own", DATA)])) == (
        "rank 0 has waited 49 s in initialize() at train.py:3 for rank 1, which went on alone "
        "after initialize() failed with ValueError: no {address}"
    )


def test_times_are_worded() -> None:
    words = {30.4: "30 s", 119: "119 s", 120: "2 min", 3600: "60 min"}
    assert {seconds: format_rough_duration(seconds) for seconds in words} == words


# --- compilations that use no processor ---

IDLE = "been compiling jit(step) for {} s without using a processor, at train.py:12"
FOR = "have waited 98 s at train.py:12 for"


@pytest.mark.parametrize(("idle", "others", "line"), [
    ({2: 70}, "jax", f"rank 2 has {IDLE.format(70)}; ranks 0-1,3 {FOR} rank 2"),
    ({2: 50}, "jax", ""),  # not yet
    ({1: 40, 2: 50}, "jax", f"ranks 1-2 have {IDLE.format(50)}; ranks 0,3 {FOR} ranks 1-2"),
    ({0: 40, 1: 40, 2: 40, 3: 40}, "", f"ranks 0-3 have {IDLE.format(40)}"),
    ({1: 40, 2: 40, 3: 40}, "own", f"ranks 1-3 have {IDLE.format(40)}: they wait for rank 0, which is in f at train.py:12"),
    ({2: 70}, "tracing", ""),  # what others compute, it may need
])  # fmt: skip
def test_idle_compilation_is_a_wait(idle: dict[int, float], others: str, line: str) -> None:
    state = Told(join(4), 4).state
    for rank, seconds in idle.items():
        spent = state.ranks[rank].compilations
        spent.begin(hook.Compiling("jit_step", STEP, "gpu"), 100.0 - seconds)
        spent.record_usage(0.0, 100.0)
    stacks = [stack(rank, others) for rank in range(4) if rank not in idle]
    still = dict.fromkeys(range(4), 2.0)
    assert line_of(View(state, 100.0, Positions(stacks, still))) == line


@pytest.mark.parametrize(("compiling", "idle_s", "line"), [
    (2, 0, ""),  # it compiles
    (2, 70, "ranks 0-1,3 have waited 70 s for rank 2 to compile jit(step), at train.py:12; "
     f"rank 2 has {IDLE.format(70)}"),
    (0, 70, f"rank 0 has {IDLE.format(70)}; "
     "ranks 1-3 have waited 70 s for rank 0 to compile jit(step), at train.py:12"),
])  # fmt: skip
def test_ranks_wait_for_the_compiling_rank(compiling: int, idle_s: float, line: str) -> None:
    state = Told(join(4), 4).state
    for rank in range(4):
        compiles = rank == compiling
        spent = state.ranks[rank].compilations
        spent.begin(hook.Compiling("jit_step", STEP, "cpu"), 100.0 - (idle_s if compiles else 70))
        spent.record_usage(0.0, 100.0)
        spent.awaits = -1 if compiles else compiling
    view = View(state, 100.0, Positions([], dict.fromkeys(range(4), 2.0)))
    assert line_of(view) == line


def test_computing_compilation_is_no_wait() -> None:
    state = Told(join(4), 4).state
    spent = state.ranks[2].compilations
    spent.begin(hook.Compiling("jit_step", STEP, "gpu"), 30.0)
    for at in (110.0, 150.0):
        spent.record_usage(0.06, at)
        assert not state.idle_compilations
    spent.record_usage(0.04, 211.0)
    assert state.idle_compilations == {2: 150.0}
    spent.end(212.0)
    assert not state.idle_compilations


# --- waits that last for ever: the table of docs/failures.md, and what makes one doubtful ---

#: What rank 2 does, while it is not where the other ranks wait for it: its stack, and its reports.
DOES: dict[str, tuple[list[Stack], list[Event]]] = {
    "has finished": ([stack(2, "shutdown", EXIT_BARRIER)], leave(2)),
    "calls shutdown()": ([stack(2, "shutdown", "train.py:40")], leave(2)),
    "exited with 0": ([], ends(2)),
    "is in an exit handler": ([stack(2, "own", "save.py:7")], leave(2)),
    "is in Python": ([stack(2, "own", DATA)], []),
    "is in another collective": ([stack(2, "all processes", "train.py:30")], []),
    "is at a barrier": ([stack(2, "a barrier", "train.py:31")], []),
}
#: The same for ranks 0 and 1, and what that means for each of the above.
TABLE = {
    "the program": ["for ever", "for ever", "for ever", "note", "note", "note", "note"],
    "all processes": ["for ever", "for ever", "for ever", "note", "note", "none", "note"],
    "a barrier": ["for ever", "for ever", "for ever", "note", "note", "note", "none"],
    "a barrier of some": ["note", "note", "note", "note", "note", "note", "note"],
    "the exit barrier": ["none", "none", "none", "none", "note", "for ever", "for ever"],
}
WAIT_AT = {
    "the program": ranks("jax", 0, 1, blocked=FUTEX),
    "all processes": ranks("all processes", 0, 1, line="train.py:30", blocked=FUTEX),
    "a barrier": ranks("a barrier", 0, 1, line="train.py:31", blocked=FUTEX),
    "a barrier of some": ranks("a barrier of some", 0, 1, line="train.py:31", blocked=FUTEX),
    "the exit barrier": ranks("shutdown", 0, 1, line=EXIT_BARRIER, blocked=FUTEX),
}


def job(*events: Event, platform: str = "cpu", flags: str = "", **known: Any) -> RunState:
    """Three ranks that have run a program that spans them all at train.py:12."""
    program = hook.Program("jit_step", 1, None, (), STEP, platform=platform)
    ran = [
        event
        for rank in range(3)
        for event in (*compiled(rank, "jit_step", STEP, platform), *said(rank, program))
    ]
    settings = {"XLA_FLAGS": flags}
    return Told([*join(3, settings=settings), *ran, *events], 3, **known).state


def lasts(where: str, does: str, moves: Sequence[int] = (), **how: Any) -> str:
    stacks, events = DOES[does]
    before = leave(0, 1) if where == "the exit barrier" else []
    wait = wait_in(job(*before, *events, **how), [*WAIT_AT[where], *stacks], moves=moves)
    return "none" if wait is None else "for ever" if wait.is_deadlock else "note"


@pytest.mark.parametrize(("where", "does", "expected"), [
    (where, does, row[at]) for where, row in TABLE.items() for at, does in enumerate(DOES)
])  # fmt: skip
def test_deadlock_is_told_from_a_temporary_wait(where: str, does: str, expected: str) -> None:
    assert lasts(where, does) == expected


HOSTS = ("a", "b")
MORE = [Launched(0, 2), Launched(1, 2)]


@pytest.mark.parametrize(("how", "expected"), [
    ({"platform": "gpu"}, "note"),  # a device may be busy
    ({"flags": "--xla_cpu_collective_timeout_seconds=60"}, "note"),  # JAX ends that itself
    ({"survives": True}, "note"),
    ({"hosts": HOSTS}, "note"),  # the network between them may be down
    ({"moves": (0,)}, "note"),
    ({"moves": (2,)}, "note"),
])  # fmt: skip
def test_doubts_make_a_wait_no_deadlock(how: dict[str, Any], expected: str) -> None:
    assert lasts("the program", "has finished", **how) == expected


def test_deadlock_is_found_on_several_hosts() -> None:
    assert lasts("the program", "exited with 0", hosts=HOSTS) == "for ever"
    state = job(*MORE, *leave(2), hosts=HOSTS)
    wait = wait_in(state, [*WAIT_AT["all processes"], *DOES["has finished"][0]])
    assert wait is not None and wait.is_deadlock


def test_rank_elsewhere_makes_a_wait_no_deadlock() -> None:
    """It may do something that nobody else can know of."""
    program, finished = WAIT_AT["the program"][0], DOES["has finished"][0]
    wait = wait_in(job(*leave(2)), [program, stack(1, "own", DATA), *finished])
    assert wait is not None and not wait.is_deadlock
    wait = wait_in(job(*leave(1, 2)), [program, stack(1, "shutdown", EXIT_BARRIER), *finished])
    assert wait is not None and wait.is_deadlock


def test_compiling_together_is_no_deadlock() -> None:
    """JAX gives up such a wait by itself."""
    state = job(*leave(2))
    for rank in (0, 1):
        state.ranks[rank].compilations.begin(hook.Compiling("jit_g", "train.py:50", "cpu"), 5.0)
        state.ranks[rank].compilations.record_usage(0.0, 100.0)
    wait = wait_in(state, DOES["has finished"][0])
    assert wait is not None and not wait.is_deadlock


def test_recoverable_ranks_are_no_deadlock() -> None:
    state = job(*leave(2))
    state.ranks[0].membership.call = hook.Joining("h:1", 3, 0, "train.py:3", recoverable=True)
    wait = wait_in(state, [*WAIT_AT["the program"], *DOES["has finished"][0]])
    assert wait is not None and not wait.is_deadlock


@pytest.mark.parametrize(("source", "expected"), [
    ("x = step(x)", True), ("x = step(", True), ("loss = float(step(x))", True),
    ("x = step(x); x.block_until_ready()", True), ("x = step(x); jax.block_until_ready(x)", True),
    ("loss = np.asarray(step(x)).item()", True), ("state, loss = step(state, next(it))", True), ("x = step(x, queue.get())", False),
    ("writer.write(step(x)).result()", False), ("if step(x):", False), ("", False),
])  # fmt: skip
def test_line_with_several_calls_is_no_single_call(source: str, *, expected: bool) -> None:
    """Nobody sees which of its calls waits."""
    lines = ranks("own", 0, 1, blocked=FUTEX, source=source)
    wait = wait_in(job(*leave(2)), [*lines, *DOES["has finished"][0]])
    assert wait is not None and wait.is_deadlock == expected
    assert is_one_call(source) == expected


@pytest.mark.parametrize(("file", "active"), [
    ("", False), ("/usr/lib/python3.11/threading.py", False), (f"{SITE}/tqdm/_monitor.py", False),
    ("/me/loader.py", True), (f"{SITE}/orbax/checkpoint/x.py", True),
    (f"{SITE}/jax/_src/callback.py", True),  # a callback of the program's
])  # fmt: skip
@pytest.mark.parametrize("rank", [0, 2])
def test_other_threads_may_end_a_wait(rank: int, file: str, *, active: bool) -> None:
    state = job()
    stacks = [*WAIT_AT["the program"], *DOES["has finished"][0]]
    thread = (
        f'Thread 0x7f (most recent call first):\n  File "{file}", line 3 in g\n' if file else ""
    )
    text = stacks[rank].text + thread
    stacks[rank] = stacks[rank].copy_with(text=text)
    assert may_act(state, stacks) == active
    assert may_act(state, stacks[:2])  # of rank 2 nothing is known
    stacks[rank] = stacks[rank].copy_with(text=text.replace(ALL_THREADS, ""))
    assert may_act(state, stacks)

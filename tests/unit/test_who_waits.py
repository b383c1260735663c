"""Who waits for whom, by stacks and what hooks have reported: tables."""

from functools import partial

import pytest
from records import end_of, run_of, say

from mcjax_launch.diagnosis.findings.waits import last_wait
from mcjax_launch.diagnosis.sightings import Stack
from mcjax_launch.diagnosis.view import Positions, View
from mcjax_launch.kernel.wire import hook_messages as hook
from mcjax_launch.kernel.wire.messages import Exited
from mcjax_launch.runs import past_waits
from mcjax_launch.runs.state import RunState
from mcjax_launch.wording import lasting

SITE = "/v/lib/python3.11/site-packages"
CALLS = {
    "jax": [f"{SITE}/jax/_src/array.py:642:_value", f"{SITE}/jax/_src/array.py:3:__float__"],
    "barrier": [f"{SITE}/jax/experimental/multihost_utils.py:165:sync_global_devices"],
    "tracing": [f"{SITE}/numpy/core.py:3:f", f"{SITE}/jax/_src/pjit.py:3:trace_to_jaxpr_dynamic"],
    "exit": [f"{SITE}/jax/_src/distributed.py:238:shutdown"],
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
STEP = "train.py:12"


def stack(rank: int, kind: str, line: str = STEP, blocked: str = "", source: str = "") -> Stack:
    """A rank's, in the user's function f, with the text of its line if that is known."""
    frames = [*CALLS[kind], f"/me/{line}:f"]
    lines = ('  File "{}", line {} in {}\n'.format(*frame.rsplit(":", 2)) for frame in frames)
    text = "Stack (most recent call first):\n" + "".join(lines)
    text += f"    {source}\n" if source else ""
    return Stack(rank, "h", 70 + rank, text, blocked=blocked)


joined = partial(run_of, joins=True)


def told(
    state: RunState, *stacks: Stack, moves: tuple[int, ...] = (), busy: tuple[int, ...] = ()
) -> str:
    still = {run.process_id: 10.0 for run in state.running if run.process_id not in moves}
    wait = View(state, 50.0, Positions(stacks, still, busy)).wait
    return wait.line(50.0) if wait is not None else ""


WAITING = [stack(rank, "jax") for rank in (0, 1, 3)]
WAITED = "ranks 0-1,3 have waited 40 s at train.py:12 for rank 2, which is in f at data.py:41"


@pytest.mark.parametrize(("late", "line"), [
    (stack(2, "own", "data.py:41", "hrtimer_nanosleep"), WAITED),
    (stack(2, "queue", "data.py:41", "futex_do_wait"), WAITED),
    (stack(2, "tensorflow", "data.py:41", "futex_do_wait"), WAITED),
    (stack(2, "own", "data.py:41"), WAITED),
    (stack(2, "inline", "data.py:41"), WAITED),
    (stack(2, "tracing", "model.py:4"), ""),
    (stack(2, "pdb", "train.py:40"), ""),
    (stack(2, "server", "data.py:41"), WAITED.replace("which is in f", "which is in a server's loop, in f")),
    (stack(2, "grpc", "data.py:41"), WAITED.replace("which is in f", "which is in a server's loop, in f")),
    (stack(2, "asyncio", "data.py:41"), WAITED.replace("which is in f", "which is in asyncio's loop, in f")),
    (stack(2, "jax"), ""),
    (Stack(2, "h", 72, "", '"python" is stopped'), WAITED.partition(", which")[0] + ', which shows no Python stack: "python" is stopped'),
])  # fmt: skip
def test_who_has_not_come(late: Stack, line: str) -> None:
    assert told(joined(4), *WAITING, late) == line


@pytest.mark.parametrize("kind", ["asyncio", "server", "grpc"])
def test_nobody_waits_in_a_collective_for_a_server(kind: str) -> None:
    """Those that have finished wait for it only as long as it serves."""
    state = joined(4)
    for rank in (0, 1, 3):
        say(state, rank, hook.Leaving(), 10.0)
    assert told(state, stack(2, kind, "data.py:41")) == ""
    assert told(state, stack(2, "own", "data.py:41")) != ""


LOADING = stack(2, "own", "load.py:7").text.replace("Stack", "Thread 0x7f [loader]")
STEPPING = stack(2, "jax", "load.py:7").text.replace("Stack", "Thread 0x7f [steps]")


@pytest.mark.parametrize(("kind", "source", "others", "line"), [
    ("queue", "", LOADING, WAITED + "; another thread of it in f at load.py:7"),
    ("own", "with lock:", LOADING, WAITED + "; another thread of it in f at load.py:7"),
    ("own", "crunch()", LOADING, WAITED),
    ("queue", "", STEPPING, ""),
    ("own", "future.result()", STEPPING, ""),
    ("own", "crunch()", STEPPING, WAITED),
])  # fmt: skip
def test_the_threads_for_which_a_main_thread_waits(
    kind: str, source: str, others: str, line: str
) -> None:
    """One that is in JAX has come, as far as one can see; any other may be what is late."""
    late = stack(2, kind, "data.py:41", "futex_do_wait", source)
    assert told(joined(4), *WAITING, late.replaced(others=others)) == line


DIED = hook.ErrorLost("loader", hook.Raised("ValueError", "ValueError: corrupt"))
NOT_IN_JAX = "all 4 ranks have stood still for 40 s, not in JAX: ranks 0-3 in f at train.py:12"


@pytest.mark.parametrize("died", [True, False])
def test_main_threads_that_all_wait_for_threads(*, died: bool) -> None:
    """A thread that goes on with its steps is not known from one that waits by one look alone."""
    state = joined(4)
    if died:
        say(state, 2, DIED, 5.0)
    stacks = [stack(rank, "queue", blocked="futex_do_wait") for rank in range(4)]
    assert told(state, *stacks) == (NOT_IN_JAX if died else "")
    inside = [one.replaced(others=STEPPING) if one.rank != 2 else one for one in stacks]
    waited = "ranks 0-1,3 have waited 40 s at load.py:7 for rank 2, which is in f at train.py:12"
    assert told(state, *inside) == waited
    wait = View(state, 50.0, Positions(inside, dict.fromkeys(range(4), 10.0))).wait
    assert wait is not None and wait.threads == ("",) * 3
    assert told(state, *stacks, moves=(1,)) == told(state, *stacks, busy=(3,)) == ""
    served = stack(2, "server", "data.py:41")
    assert told(state, *stacks[:2], served, stacks[3]) == ""


def orbax(called: str) -> str:
    """A thread of Orbax's that calls this of JAX's coordination service."""
    calls = f"{SITE}/jaxlib/coordination_service", f"{SITE}/orbax/multihost.py"
    names = f"{called}('save.0')", "_fn"
    lines = (
        f'  File "{file}", line 3 in {name}\n' for file, name in zip(calls, names, strict=True)
    )
    return "Thread 0x7f [save]:\n" + "".join(lines) + "Switches of 0x7f 1234\n"


@pytest.mark.parametrize(("called", "where"), [
    ("wait_at_barrier", "at the barrier 'save.0'"),
    ("blocking_key_value_get", "in blocking_key_value_get('save.0')"),
])  # fmt: skip
@pytest.mark.parametrize("elsewhere", ["queue", "jax"])
def test_a_main_thread_that_waits_for_one_at_a_barrier(
    called: str, where: str, elsewhere: str
) -> None:
    """It waits for the others, where these wait for threads as where JAX blocks them."""
    state = joined(2)
    saves = stack(0, "queue", blocked="futex_do_wait").replaced(others=orbax(called))
    stacks = [saves, stack(1, elsewhere, "train.py:30")]
    wait = View(state, 50.0, Positions(stacks, {0: 10.0, 1: 10.0})).wait
    assert wait is not None and wait.with_orbax and wait.threads == ("Switches of 0x7f 1234",)
    where += " in a thread that the main thread awaits in f at train.py:12"
    assert (
        wait.line(50.0)
        == {
            "queue": f"rank 0 has waited 40 s {where} for rank 1, which is in f at train.py:30",
            "jax": f"rank 0 {where} and rank 1 at train.py:30 have waited 40 s for one another",
        }[elsewhere]
    )


def at_a_limit(*stacks: Stack, idle_since: float | None = 20.0) -> past_waits.PastWait | None:
    state = joined(4)
    state.idle_since, state.stop_at = idle_since, 80.0
    return last_wait(state, stacks)


def test_who_waited_when_a_limit_was_reached() -> None:
    """Few or many: those that JAX blocks wait for the others."""
    away = [stack(rank, "own", "data.py:41", "hrtimer_nanosleep") for rank in range(4)]
    many = at_a_limit(*WAITING, away[2])
    assert many is not None
    assert (many.place, many.where, many.late) == ("", "train.py:12", (2,))
    assert many.arrived == ((0, 20.0), (1, 20.0), (3, 20.0))
    one = at_a_limit(*away[:3], WAITING[-1])
    assert one is not None
    assert (one.arrived, one.late, one.until) == (((3, 20.0),), (0, 1, 2), 80.0)
    in_a_call = at_a_limit(stack(0, "barrier"), *away[1:])
    assert in_a_call is not None
    assert (in_a_call.place, in_a_call.where) == ("sync_global_devices()", "train.py:12")
    assert at_a_limit(*away) is None
    assert at_a_limit() is None
    assert at_a_limit(*WAITING, away[2], idle_since=None) is None


@pytest.mark.parametrize(("blocked", "waits"), [
    ("futex_do_wait", True), ("futex_wait_queue_me", True), ("syscall 202", True), ("syscall 98", True),
    ("hrtimer_nanosleep", False), ("pipe_read", False), ("syscall 2", False), ("", False),
])  # fmt: skip
def test_a_call_into_c_from_the_users_own_line(blocked: str, waits: bool) -> None:
    """JAX's fast path has no Python; it waits on a lock."""
    stacks = [stack(rank, "own", STEP, blocked) for rank in (0, 1, 3)]
    line = told(joined(4), *stacks, stack(2, "queue", "data.py:41"))
    assert line == (WAITED if waits else "")


@pytest.mark.parametrize("line", [
    "with lock:", "with self.lock, open(name):", "if ready: lock.acquire()", "for batch in iter(batches.get, None):", "batch = batches.get()", "loader.join()", "lock.acquire(timeout=9)",
    "select.select([pipe], [], [])", "rows = future.result()", "done.wait()", "results.put(loss)",
])  # fmt: skip
def test_a_wait_in_the_users_own_line_is_none_in_jax(line: str) -> None:
    """So a rank that waits there is waited for, and waits for none itself."""
    late = stack(2, "own", "data.py:41", "futex_do_wait", line)
    assert told(joined(4), *WAITING, late) == WAITED
    own = [stack(rank, "own", STEP, "futex_do_wait", line) for rank in (0, 1, 3)]
    assert told(joined(4), *own, stack(2, "queue", "data.py:41")) == ""


@pytest.mark.parametrize("line", ["loss = step(x)", "state, loss = step(state, batch)"])
def test_a_line_that_calls_what_may_be_a_program(line: str) -> None:
    inside = [stack(rank, "own", STEP, "futex_do_wait", line) for rank in (0, 1, 3)]
    assert told(joined(4), *inside, stack(2, "queue", "data.py:41")) == WAITED


@pytest.mark.parametrize(("blocked", "source"), [("futex_do_wait", "step(q.get())"), ("", "")])
def test_the_line_of_a_known_program_waits_in_jax(blocked: str, source: str) -> None:
    """Whatever it calls, and where the kernel tells nothing."""
    state = joined(4)
    for rank in (0, 1, 3):
        say(state, rank, hook.Program("jit_step", "f", None, (), STEP), 3.0)
    inside = [stack(rank, "own", STEP, blocked, source) for rank in (0, 1, 3)]
    line = told(state, *inside, stack(2, "queue", "data.py:41"))
    assert line == WAITED.replace("at train.py:12", "in jit(step) at train.py:12")


def test_only_those_of_the_programs_mesh_are_awaited() -> None:
    state = joined(4)
    for rank in (0, 1):
        say(state, rank, hook.ProcessNumber("", rank), 2.5)
        say(state, rank, hook.Program("jit_step", "f", (0, 1), (), STEP), 3.0)
    there, elsewhere = stack(0, "jax"), [stack(rank, "queue", "data.py:41") for rank in (2, 3)]
    line = told(state, there, stack(1, "queue", "data.py:41"), *elsewhere)
    assert line.endswith("for rank 1, which is in f at data.py:41")
    assert told(state, there, stack(1, "jax"), *elsewhere) == ""


def test_the_name_of_the_call_and_what_was_compiled_last() -> None:
    state = joined(4)
    say(state, 2, hook.Compiling("jit_loss", "src/train.py:7", "cpu"), 3.0)
    say(state, 2, hook.Compiled(), 3.0)
    stacks = [stack(rank, "barrier") for rank in (0, 1, 3)]
    line = told(state, *stacks, stack(2, "own", "src/train.py:41", "pipe_read"))
    assert line == (
        "ranks 0-1,3 have waited 40 s in sync_global_devices() at train.py:12 for rank 2, "
        "which is in f at src/train.py:41 (last compiled jit(loss) at src/train.py:7)"
    )


def test_a_rank_that_others_outlive() -> None:
    state = joined(4)
    state.survives = True
    state.exited(Exited(2, -9, (), None, 0.0, 0), 4.0)
    where = "ranks 0-1,3 have waited 40 s at train.py:12 for rank 2, which"
    assert told(state, *WAITING) == f"{where} has failed"
    state.ranks[2].process.restarts = True
    assert told(state, *WAITING) == f"{where} is being started again"
    state.next_life(2, 5.0)
    assert told(state, *WAITING) == f"{where} is being started again"


def test_a_compilation_is_waited_for() -> None:
    state = joined(4)
    say(state, 2, hook.Compiling("jit_loss", "train.py:7", "cpu"), 3.0)
    assert told(state, *WAITING, stack(2, "own", "data.py:41")) == ""


def test_a_rank_that_computes() -> None:
    assert told(joined(4), *WAITING, stack(2, "own", STEP), busy=(2,)) == ""
    assert told(joined(4), *WAITING, stack(2, "queue", "data.py:41"), busy=(0, 1, 3)) == ""


def test_ranks_in_many_places() -> None:
    state = joined(6)
    away = [stack(rank, "queue", f"data.py:{40 + rank}") for rank in (2, 3, 4, 5)]
    assert told(state, stack(0, "jax"), stack(1, "jax"), *away) == (
        "ranks 0-1 have waited 40 s at train.py:12 for rank 2, which is in f at data.py:42, "
        "rank 3, which is in f at data.py:43 and others in 2 more places"
    )


def test_one_that_has_finished() -> None:
    state = joined(4)
    say(state, 2, hook.Leaving(), 9.0)
    gone = "for rank 2, which has finished and is"
    assert told(state, *WAITING).endswith(f"{gone} in JAX's exit barrier")
    handler = stack(2, "queue", "save.py:7")
    assert told(state, *WAITING, handler).endswith(f"{gone} in f at save.py:7")
    shutdown = stack(2, "exit", "train.py:40")
    line = told(state, *WAITING, shutdown)
    assert line.endswith("for rank 2, which is in JAX's exit barrier, in shutdown() at train.py:40")
    say(state, 1, hook.Leaving(), 9.0)
    line = told(state, *WAITING[::2])
    assert line.endswith("for ranks 1-2, which have finished and are in JAX's exit barrier")
    state.ranks[1].membership.leaving_at = None
    state.exited(end_of(2, 0), 10.0)
    assert told(state, *WAITING).endswith("for rank 2, which exited with 0")


def test_in_the_exit_barrier() -> None:
    state = joined(3)
    for rank in (0, 1):
        say(state, rank, hook.Leaving(), 10.0 + rank)
    assert told(state, stack(2, "queue", "data.py:41")) == (
        "ranks 0-1 have waited 40 s in JAX's exit barrier for rank 2, which is in f at data.py:41"
    )
    say(state, 2, hook.Leaving(), 12.0)
    assert told(state) == ""


def test_all_in_one_place_is_a_long_step_and_in_two_a_deadlock() -> None:
    all_here = [stack(rank, "jax") for rank in range(4)]
    assert told(joined(4), *all_here) == ""
    two_places = [*all_here[:3], stack(3, "barrier", "train.py:30")]
    assert told(joined(4), *two_places) == (
        "ranks 0-2 at train.py:12 and rank 3 in sync_global_devices() at train.py:30 "
        "have waited 40 s for one another"
    )
    on_gpu = joined(4)
    say(on_gpu, 0, hook.Compiling("jit_f", "", "gpu"), 3.0)
    say(on_gpu, 0, hook.Compiled(), 3.0)
    assert told(on_gpu, *two_places) == ""  # devices may be busy


def test_ranks_of_another_launcher() -> None:
    line = told(joined(2, num_processes=4), stack(0, "jax"), stack(1, "jax"))
    assert line == "ranks 0-1 have waited 40 s at train.py:12 for those of other launchers"


def test_one_whose_call_of_initialize_failed() -> None:
    state = run_of(2)
    for rank in (0, 1):
        say(state, rank, hook.Joining("h:1", 2, rank, "train.py:3"), 10.0)
    say(state, 1, hook.NotJoined("ValueError", "no {address}"), 10.0)
    assert told(state, stack(1, "own", "data.py:41")) == (
        "rank 0 has waited 40 s in initialize() at train.py:3 for rank 1, which went on alone "
        "after initialize() failed with ValueError: no {address}"
    )


def test_on_several_hosts() -> None:
    state = joined(4)
    state.hosts = 4
    state.ranks[2].host = "gpu02"
    line = told(state, *WAITING, stack(2, "queue", "data.py:41"))
    assert line.endswith("for rank 2 on gpu02, which is in f at data.py:41")


def test_a_helper_is_not_the_rank() -> None:
    state = joined(2)
    helper = Stack(0, "h", 99, stack(0, "queue", "w.py:1").text, helper=True)
    line = told(state, helper, stack(0, "jax"), stack(1, "queue", "data.py:41"))
    assert line.startswith("rank 0 has waited 40 s at train.py:12 for rank 1")


def test_times() -> None:
    words = {30.4: "30 s", 119: "119 s", 120: "2 min", 3600: "60 min"}
    assert {seconds: lasting(seconds) for seconds in words} == words


def compile_(state: RunState, rank: int, name: str, *, idle_s: float) -> None:
    """The rank compiles, and has used no processor for so long, until 100 s."""
    say(state, rank, hook.Compiling(name, STEP, "gpu"), 100.0 - idle_s)
    state.ranks[rank].compilations.used(0.0, 100.0)


IDLE = "compiled jit(step) for {} s without using a processor, at train.py:12"


@pytest.mark.parametrize(
    ("idle", "others", "line"),
    [
        ({2: 70}, "jax", f"rank 2 has {IDLE.format(70)}; ranks 0-1,3 have waited 98 s at "
         "train.py:12 for rank 2"),
        ({2: 50}, "jax", ""),  # not yet
        ({1: 40, 2: 50}, "jax", f"ranks 1-2 have {IDLE.format(50)}; ranks 0,3 have waited 98 s at "
         "train.py:12 for ranks 1-2"),
        ({0: 40, 1: 40, 2: 40, 3: 40}, "", f"ranks 0-3 have {IDLE.format(40)}"),
        ({1: 40, 2: 40, 3: 40}, "own", f"ranks 1-3 have {IDLE.format(40)}: they wait for rank 0, "
         "which is in f at train.py:12"),
        ({2: 70}, "tracing", ""),  # what others compute, it may need
    ],
)  # fmt: skip
def test_a_compilation_that_uses_no_processor_is_a_wait(
    idle: dict[int, float], others: str, line: str
) -> None:
    state = joined(4)
    for rank, seconds in idle.items():
        compile_(state, rank, "jit_step", idle_s=seconds)
    stacks = [stack(rank, others) for rank in range(4) if rank not in idle]
    still = dict.fromkeys(range(4), 2.0)
    wait = View(state, 100.0, Positions(stacks, still)).wait
    assert (wait.line(100.0) if wait is not None else "") == line


def test_a_compilation_that_computes_is_none() -> None:
    state = joined(4)
    compile_(state, 2, "jit_step", idle_s=70)
    for at in (110.0, 150.0):
        state.ranks[2].compilations.used(0.06, at)
        assert not state.idle_compilations
    state.ranks[2].compilations.used(0.04, 211.0)
    assert state.idle_compilations == {2: 150.0}
    say(state, 2, hook.Compiled(), 212.0)
    assert not state.idle_compilations


@pytest.mark.parametrize(("frames", "moves", "line"), [
    ("", (), "ranks 1-2 have waited 40 s after Python's end for C++ code, as a rule for a program of JAX's whose result nobody has read"),
    ("", (1,), ""),
    ('  File "/me/train.py", line 9 in save\n', (), ""),  # as a handler of atexit's
])  # fmt: skip
def test_ranks_that_do_not_end(frames: str, moves: tuple[int, ...], line: str) -> None:
    state = joined(3)
    for rank in range(3):
        say(state, rank, hook.Leaving(), 9.0)
        say(state, rank, hook.Left(), 10.0)
    state.exited(end_of(0, 0), 11.0)
    over = [Stack(rank, "h", 70 + rank, f"Current thread 0x1:\n{frames}") for rank in (1, 2)]
    assert told(state, *over, moves=moves) == line

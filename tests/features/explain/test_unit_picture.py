"""Where ranks are when nothing moves, as lines and as a sentence."""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from fakes import Clock
from records import run_of, say

from mcjax_launch.features.explain import explanations
from mcjax_launch.features.explain.explanations import Explanations
from mcjax_launch.features.explain.picture import find_place, make_picture
from mcjax_launch.features.recorder.sequences import MeshSequence, ProgramSequences
from mcjax_launch.journal.facts import AwaitsCompilation, CallsChanged, Finding, RanksLost, Stack
from mcjax_launch.journal.programs import RanProgram
from mcjax_launch.journal.state import RunState
from mcjax_launch.wire import hook_messages as hook
from mcjax_launch.wire.frames import Data
from mcjax_launch.wire.messages import Exited

SITE = "/v/lib/python3.13/site-packages"
LIBRARY = "/usr/lib/python3.13"
HEAD = "Stack (most recent call first):"


def frame(file: str, line: int, name: str, source: str = "") -> str:
    return f'  File "{file}", line {line} in {name}' + (f"\n    {source}" if source else "")


GATHER = [
    frame(f"{SITE}/jax/_src/pjit.py", 9, "cache_miss"),
    frame(f"{SITE}/jax/experimental/multihost_utils.py", 9, "_handle_array"),
    frame(f"{SITE}/jax/experimental/multihost_utils.py", 99, "process_allgather"),
    frame("/me/hang.py", 6, "<module>"),
]
LOAD = [
    frame("/me/hang.py", 4, "load_batch", "time.sleep(9)"),
    frame("/me/hang.py", 5, "<module>"),
]
STEP = [frame("/me/train.py", 31, "train", "x = step(x)")]
READY = [frame("/me/train.py", 32, "train", "x.block_until_ready()")]
BARRIER = [
    frame(f"{SITE}/jaxlib/coordination_service", 1, "wait_at_barrier('save')"),
    frame(f"{SITE}/jax/experimental/multihost_utils.py", 9, "sync_global_devices"),
    frame("/me/train.py", 40, "save"),
]
SOME_BARRIER = [
    frame(f"{SITE}/jaxlib/coordination_service", 1, "wait_at_barrier('save', ...)"),
    frame("/me/train.py", 40, "save"),
]
KEY = [
    frame(f"{SITE}/jaxlib/coordination_service", 1, "blocking_key_value_get('k')"),
    frame("/me/train.py", 41, "<module>"),
]
TRACE = [
    frame(f"{SITE}/jax/_src/core.py", 1, "bind"),
    frame("/me/train.py", 8, "step"),
    frame(f"{SITE}/jax/_src/pjit.py", 2, "trace_to_jaxpr"),
    frame("/me/train.py", 31, "train"),
]
EXIT = [frame(f"{SITE}/jax/_src/distributed.py", 1, "shutdown")]
PDB = [frame(f"{LIBRARY}/pdb.py", 1, "cmdloop"), frame("/me/train.py", 7, "train")]
QUEUE = [frame(f"{LIBRARY}/queue.py", 171, "get"), frame("/me/train.py", 25, "<module>")]
AT_END = [frame(f"{LIBRARY}/threading.py", 1, "_shutdown")]
ASYNCIO = [
    frame(f"{LIBRARY}/selectors.py", 1, "select"),
    frame(f"{LIBRARY}/asyncio/base_events.py", 2, "run_forever"),
    frame("/me/serve.py", 9, "serve"),
]
PRODUCE = [frame("/me/train.py", 20, "produce")]
CALLBACK = [frame("/me/train.py", 18, "cb"), frame(f"{SITE}/jax/_src/callback.py", 5, "pure")]


def joined(count: int) -> RunState:
    state = run_of(count, joins=True)
    ran = RanProgram("jit_step", frozenset(range(count)), "train.py:31")
    for run in state.ranks.values():
        run.compilations.ran["train.py:31"] = ran
    return state


def stack(rank: int, calls: Sequence[str], others: Sequence[str] = ()) -> Stack:
    thread = "\n".join(["Thread 0x01 (most recent call first):", *others]) if others else ""
    return Stack(rank, "h", 70 + rank, "\n".join([HEAD, *calls]), others=thread)


def test_ranks_are_grouped_by_place_and_fewest_come_first() -> None:
    state = joined(4)
    state.sequences = ProgramSequences()
    mesh = state.sequences.meshes[0, 1] = MeshSequence(range(4))
    for rank in range(4):
        mesh.add(rank, 1, [7] * 400, 7 if rank != 2 else 0, 1.0)
    stacks = [stack(rank, LOAD if rank == 2 else GATHER) for rank in range(4)]
    helper = stack(2, GATHER).copy_with(helper=True)
    picture = make_picture(state, [helper, *stacks])
    assert picture.format_lines(picture.since + 31) == [
        "nothing has moved for 31 s:",
        "  rank 2      in load_batch at hang.py:4, after program 400",
        "  ranks 0-1,3 wait in process_allgather at hang.py:6 (program 401)",
    ]
    assert picture.sentence == (
        "rank 2 is in load_batch at hang.py:4; "
        "ranks 0-1,3 wait for it in process_allgather at hang.py:6"
    )
    assert (picture.late, picture.is_one_place) == ((2,), False)


def test_a_long_step_is_one_place_whatever_the_numbers() -> None:
    state = joined(3)
    state.sequences = ProgramSequences()
    mesh = state.sequences.meshes[0, 1] = MeshSequence(range(3))
    for rank in range(3):
        mesh.add(rank, 1, [7] * (9 + rank), 0, 1.0)
    picture = make_picture(state, [stack(rank, STEP) for rank in range(3)])
    assert picture.is_one_place
    assert picture.sentence == "all 3 ranks wait in jit(step) at train.py:31"
    assert picture.late == ()


PLACES = {
    "a program": (STEP, (), "waits in jit(step) at train.py:31"),
    "an array": (READY, (), "waits in train at train.py:32"),
    "a barrier": (BARRIER, (), "waits at the barrier 'save' in sync_global_devices at train.py:40"),
    "a barrier of some": (SOME_BARRIER, (), "waits at the barrier 'save', ... in save at train.py:40"),
    "a key": (KEY, (), "waits in blocking_key_value_get('k') at train.py:41"),
    "tracing": (TRACE, (), "is in step at train.py:8"),
    "a debugger": (PDB, (), "is in pdb, in train at train.py:7"),
    "a server": (ASYNCIO, (), "is in serve at serve.py:9"),
    "a queue": (QUEUE, PRODUCE, "is at train.py:25, while a thread of it is in produce at train.py:20"),
    "a thread in JAX": (QUEUE, KEY, "waits in blocking_key_value_get('k') at train.py:41 in a thread, while it is at train.py:25"),
    "a callback": (LOAD, CALLBACK, "is in load_batch at hang.py:4, while a callback of it is in cb at train.py:18"),
    "the end": (AT_END, (), "is at its end, where Python waits for its threads, in _shutdown at threading.py:1"),
    "no Python": ((), (), "is after Python's end"),
}  # fmt: skip


@pytest.mark.parametrize("name", PLACES)
def test_place_follows_from_the_innermost_calls(name: str) -> None:
    calls, others, words = PLACES[name]
    place = find_place(joined(1).ranks[0], stack(0, calls, others))
    assert f"{place.verb} {place.where}" == words


def words_of(state: RunState, rank: int, calls: Sequence[str] | None = ()) -> str:
    place = find_place(state.ranks[rank], None if calls is None else stack(rank, calls))
    return f"{place.verb} {place.where}"


def test_place_follows_from_the_stage() -> None:
    state = run_of(4)
    say(state, 0, hook.Joining("h:1", 4, 0, "hang.py:3"), 1.0)
    say(state, 2, hook.Joining("h:1", 4, 2), 1.0)
    say(state, 2, hook.NotJoined("RuntimeError", "too late"), 2.0)
    assert words_of(state, 0, GATHER) == "waits in initialize() at hang.py:3"
    assert words_of(state, 1, LOAD) == "has not called initialize(), in load_batch at hang.py:4"
    assert words_of(state, 1, None) == "has not called initialize()"
    assert words_of(state, 2, LOAD).startswith("is alone, after initialize() failed, in load_b")
    state.on_exited(Exited(3, 0, (), "", 0.0, 0), 3.0)
    assert words_of(state, 3) == "has ended"
    state.on_ranks_lost(RanksLost([1]), 3.0)
    assert words_of(state, 1) == "has been lost with its host"
    state = joined(2)
    say(state, 0, hook.Leaving(), 3.0)
    assert words_of(state, 0, EXIT) == "waits in JAX's exit barrier"
    assert words_of(state, 0, LOAD) == "is in load_batch at hang.py:4"  # an atexit handler
    say(state, 1, hook.Compiling("jit_step", "train.py:8", "cpu"), 3.0)
    assert words_of(state, 1, STEP) == "compiles jit(step) at train.py:8"
    state.on_awaits_compilation(AwaitsCompilation(1, 0), 3.0)
    assert words_of(state, 1, STEP) == "waits for rank 0 to compile jit(step) at train.py:8"


def test_handled_exception_is_told_with_its_place() -> None:
    handling = "Handling ValueError: bad batch 17 (hang.py:8)"
    other = "Thread 0x01 (most recent call first):\nHandling KeyError (a.py:1)"
    state = joined(3)
    stacks = [stack(rank, GATHER) for rank in (0, 2)]
    barrier = stack(1, [*BARRIER, handling, "", other])
    where = "waits at the barrier 'save' in sync_global_devices at train.py:40"
    picture = make_picture(state, [*stacks, barrier])
    assert picture.format_lines(picture.since + 31)[1:] == [
        f"  rank 1    handling ValueError: bad batch 17 (hang.py:8) and {where}",
        "  ranks 0,2 wait in process_allgather at hang.py:6",
    ]
    assert picture.sentence == (
        f"rank 1 is handling ValueError: bad batch 17 (hang.py:8) and {where}; "
        "ranks 0,2 wait for it in process_allgather at hang.py:6"
    )
    place = make_picture(state, [stack(0, [*LOAD, handling])]).places[0]
    assert place.format([0]) == (
        "is handling ValueError: bad batch 17 (hang.py:8), in load_batch at hang.py:4"
    )
    assert not find_place(state.ranks[0], stack(0, [*GATHER, "", other])).handled


def test_rank_that_handles_an_exception_waits_for_one_that_does_not_wait() -> None:
    handling = "Handling TimeoutError: storage slow (hang.py:2)"
    found = [stack(0, [*GATHER, handling]), stack(1, GATHER), stack(2, LOAD)]
    picture = make_picture(joined(3), found)
    assert picture.late == (2,)
    assert picture.sentence == (
        "rank 2 is in load_batch at hang.py:4; rank 0 is handling TimeoutError: storage slow "
        "(hang.py:2) and waits for it in process_allgather at hang.py:6; rank 1 waits for it in "
        "process_allgather at hang.py:6"
    )


def test_exception_that_a_thread_is_handling_is_told_if_the_main_thread_may_wait_for_it() -> None:
    thread = [*BARRIER, "Handling KeyError: 'x' (load.py:3)"]
    place = find_place(joined(1).ranks[0], stack(0, QUEUE, thread))
    assert place.format([0]) == (
        "is handling KeyError: 'x' (load.py:3) and waits at the barrier 'save' in "
        "sync_global_devices at train.py:40 in a thread, while it is at train.py:25"
    )


def test_rank_without_a_stack_shows_why() -> None:
    state = joined(2)
    why = '"python" is sleeping in the kernel (x), and C code holds Python\'s lock (the GIL)'
    place = find_place(state.ranks[0], Stack(0, "h", 7, "", state=why))
    assert place.where == "no Python stack (C code holds Python's lock (the GIL))"
    assert words_of(state, 1, None) == "has not answered"


def test_threads_are_told_only_if_the_main_thread_may_wait_for_them() -> None:
    """Of all threads, which are shown when a limit is reached."""
    run = joined(1).ranks[0]
    thread = ["", "Thread 0x01 (most recent call first):", *PRODUCE]
    assert find_place(run, stack(0, [*LOAD[1:], *thread])).where == "at hang.py:5"
    assert (
        "while a thread of it is in produce" in find_place(run, stack(0, [*QUEUE, *thread])).where
    )


def test_many_places_are_counted() -> None:
    state = joined(40)
    stacks = [stack(rank, [frame("/me/a.py", rank, "f")]) for rank in range(30)]
    stacks += [stack(rank, GATHER) for rank in range(30, 40)]
    lines = make_picture(state, stacks).format_lines(31.0)
    assert len(lines) == 10
    assert lines[-2] == "  23 ranks at 23 other places"
    assert lines[-1].startswith("  ranks 30-39 wait in process_allgather")
    assert (
        "others at 27 more places; ranks 30-39 wait for them"
        in make_picture(state, stacks).sentence
    )


def test_hosts_are_named_if_there_are_several() -> None:
    state = joined(2)
    state.hosts, state.ranks[1].host = 2, "gpu02"
    picture = make_picture(state, [stack(0, GATHER), stack(1, LOAD)])
    assert picture.sentence.startswith("rank 1 on gpu02 is in load_batch at hang.py:4; rank 0 on h")


# --- when they are shown ---


class Watched:
    """A job of three ranks in which nothing moves from 100 s on, and what is said."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.clock = Clock(patch, explanations)
        self.state = joined(3)
        self.state.initialize_calls, self.state.num_processes = 3, 3
        self.state.activity.active_at = self.clock.now = 100.0
        self.calls = [GATHER, LOAD, GATHER]
        self.asked: list[float] = []
        self.said: list[str] = []
        self.found: list[Finding] = []
        launcher: Any = SimpleNamespace(
            state=self.state,
            links=(),
            stacks=SimpleNamespace(request=self._request),
            journal=SimpleNamespace(append=self.found.append),
            console=SimpleNamespace(note=self.said.append),
        )
        self.part = Explanations(launcher)

    def _request(self, links: object, on_complete: Callable[[list[Stack]], None]) -> None:
        self.asked.append(self.clock.now)
        on_complete([stack(rank, calls) for rank, calls in enumerate(self.calls)])

    def run_until(self, now: float) -> list[float]:
        """Times at which hosts are asked for stacks."""
        while (deadline := self.part.deadline) is not None and deadline <= now:
            self.clock.now = deadline
            self.part.expire(deadline)
        self.clock.now = now
        asked, self.asked = self.asked, []
        return asked


def test_picture_is_told_once_and_looked_for_at_ever_longer_intervals(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watched = Watched(monkeypatch)
    assert watched.run_until(400.0) == [130.0, 160.0, 220.0, 340.0]
    [told] = watched.said
    assert told.splitlines()[:2] == [
        "nothing has moved for 30 s:",
        "  rank 1    in load_batch at hang.py:4",
    ]
    assert watched.found[0].ranks == (1,)
    assert watched.state.picture.startswith("rank 1 is in load_batch at hang.py:4; ranks 0,2 wait")
    watched.calls = [GATHER, GATHER, LOAD]
    assert watched.run_until(600.0) == [580.0]
    assert len(watched.said) == 2
    watched.state.on_data(Data(1, 1, b"x"), 700.0)
    assert watched.run_until(735.0) == [730.0]
    assert len(watched.said) == 2


def test_nothing_is_said_of_a_long_step(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch)
    watched.calls = [STEP, STEP, STEP]
    assert watched.run_until(400.0) == [130.0, 160.0, 220.0, 340.0]
    assert watched.said == []


def test_no_host_is_asked_while_nothing_can_be_told(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch)
    watched.state.pause.begin(101.0)
    assert watched.part.deadline is None
    watched.state.pause.end(102.0)
    watched.state.on_calls_changed(CallsChanged(True), 103.0)
    assert watched.part.deadline is None
    watched.state.on_calls_changed(CallsChanged(False), 104.0)
    assert watched.part.deadline == 134.0
    watched.state.initialize_calls = 0
    assert watched.part.deadline is None


def test_what_moves_while_hosts_answer_is_no_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch)
    watched.state.activity.active_at = 100.0
    watched.part._looked_at = 130.0
    watched.state.on_data(Data(1, 1, b"x"), 131.0)
    watched.part._show_picture([stack(0, GATHER), stack(1, LOAD), stack(2, GATHER)])
    assert watched.said == []

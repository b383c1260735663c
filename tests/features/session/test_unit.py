"""Calls and what they return: on a host, and in the program that makes them."""

import os
import pickle
import resource
import sys
from collections.abc import Generator, Iterator
from itertools import chain, islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import parts
import pytest
from records import run_of

from mcjax_launch.agent.system import system
from mcjax_launch.features.explain.picture import find_place
from mcjax_launch.features.session import agent
from mcjax_launch.features.session.client import calls
from mcjax_launch.features.session.client.calls import Answer, RankValues
from mcjax_launch.features.session.client.progress import (
    CallFailed,
    CallProgress,
    Due,
    RankError,
    describe_errors,
)
from mcjax_launch.features.session.launcher import ClientCalls
from mcjax_launch.features.session.messages import (
    CallReady,
    EndCalls,
    Interrupt,
    MakeCall,
    Ready,
    Returned,
    Waiting,
    get_call_path,
    get_result_path,
    list_sizes,
    pickle_in_parts,
)
from mcjax_launch.journal.facts import Stack
from mcjax_launch.machine.loop import Loop
from mcjax_launch.wire import frames
from mcjax_launch.wire.hook_messages import HookMessage
from mcjax_launch.wire.messages import FromHook, Refused, Started

LARGE = 1 << 18


def test_folders_before_the_library_come_first_in_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    folders = ["/mine", os.path.dirname(os.__file__), "/other"]
    monkeypatch.setattr(sys, "path", folders)
    head = calls._make_head(initializes=False)
    assert (head.folders, head.first_folders) == (tuple(folders), ("/mine",))


class Way:
    """In place of an uplink: what it was given, as the launcher and its client get it."""

    def __init__(self) -> None:
        self.deferred: list[Generator[bytes, None, None]] = []

    def send_later(self, pieces: Generator[bytes, None, None]) -> None:
        self.deferred.append(pieces)

    def taken(self, most: int = 1000) -> bytes:
        return b"".join(chain.from_iterable(islice(pieces, most) for pieces in self.deferred))


class Host:
    """The agent's side, in a folder with what ranks have written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.way = Way()
        self.drained: list[int] = []
        streams = SimpleNamespace(drain=self.drained.append)
        self.sent: list[object] = []
        made = parts.agent(folder, Loop(), self.way, streams=streams)
        made.link.send = self.sent.append
        self.returns = agent.HostCalls(made)

    def add(self, rank: int, value: object, kind: str = "value") -> None:
        parts = pickle_in_parts(value, pickle.dumps)
        Path(get_result_path(str(self.folder), str(rank), 1)).write_bytes(b"".join(parts))
        self.report(rank, Returned(1, kind, list_sizes(parts)))

    def report(self, rank: int, said: HookMessage) -> None:
        hook: Any = SimpleNamespace(rank=rank)
        self.returns.on_hook_message(hook, FromHook(rank, said))


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    made = Host(tmp_path)
    yield made
    for pieces in made.way.deferred:
        pieces.close()


def buffer(byte: int) -> object:
    return pickle.PickleBuffer(bytearray([byte]) * LARGE)


def test_large_values_of_several_ranks_are_sent_back(host: Host) -> None:
    host.add(0, {"small": 1, "large": buffer(1), "other": buffer(2)})
    host.add(3, buffer(3))
    assert os.listdir(host.folder) == []  # nobody has to remove anything
    returns = RankValues()
    returns.feed(memoryview(host.way.taken()))
    assert [returns.has("value", rank) for rank in (0, 1, 3)] == [True, False, True]
    assert host.drained == [0, 3]  # output goes first
    found = returns.pop(0).unpickle()
    assert found["small"] == 1
    assert (found["large"], found["other"]) == (b"\1" * LARGE, b"\2" * LARGE)
    assert returns.pop(3).unpickle() == b"\3" * LARGE
    assert not returns.has("value", 0)


def test_part_of_a_value_does_not_count(host: Host) -> None:
    host.add(0, buffer(1))
    returns = RankValues()
    returns.feed(memoryview(host.way.taken(most=3)))
    assert not returns.has("value", 0)


def test_value_of_an_earlier_attempt_is_forgotten(host: Host) -> None:
    host.add(0, 7)
    returns = RankValues()
    returns.feed(memoryview(host.way.taken()))
    returns.feed(memoryview(frames.encode_message(Started(1, 100))))
    assert returns.has("value", 0)
    returns.feed(memoryview(frames.encode_message(Started(0, 101))))
    assert not returns.has("value", 0)


def test_ending_job_sends_back_only_exceptions(host: Host) -> None:
    host.add(0, buffer(1))
    host.add(1, KeyError("no such thing"), "raised")
    host.returns.on_stop()
    sent = frames.Decoder().feed(host.way.taken())
    contents = [frame.number for frame in sent if isinstance(frame, frames.Raw)]
    assert contents == [1]


def test_no_value_is_sent_for_a_rank_that_wrote_none(host: Host) -> None:
    host.report(0, Returned(1, "value", (1,)))
    assert host.way.deferred == []


# --- calls on a host ---


class Program:
    """In place of the connection to a rank's program: what it was sent."""

    pid = 0

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.sent: list[object] = []

    def send(self, message: object) -> None:
        self.sent.append(message)


def add_program(host: Host, rank: int) -> Program:
    program: Any = Program(rank)
    host.returns.on_hook_message(program, FromHook(rank, Ready()))
    return program  # type: ignore[no-any-return]


def submit(host: Host, number: int, content: bytes, ranks: tuple[int, ...] | None = None) -> None:
    host.returns.on_message(frames.Raw("session", number, content))
    host.returns.on_message(MakeCall(number, ranks))


def test_call_reaches_its_ranks_whenever_they_are_ready(host: Host) -> None:
    early = add_program(host, 0)
    submit(host, 1, b"a call", (0, 2))
    assert Path(get_call_path(str(host.folder), 1)).read_bytes() == b"a call"
    programs = [early, add_program(host, 1), add_program(host, 2)]
    ready = CallReady(1, (0, 2))
    assert [program.sent for program in programs] == [[ready], [], [ready]]


def test_interrupt_reaches_the_ranks_that_still_make_this_call(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not one that waits for the next call, is over, or makes another call."""
    reached: list[int] = []
    monkeypatch.setattr(system, "signal_process", lambda pid, signum: reached.append(pid))
    programs = [add_program(host, rank) for rank in range(4)]
    for rank, program in enumerate(programs):
        program.pid = 70 + rank
    host.returns.on_message(Interrupt(1))  # there is no call yet
    submit(host, 1, b"a call", (0, 1, 2))
    host.add(1, "returned")
    host.returns.on_hook_loss(programs[2])  # type: ignore[arg-type]
    for number in (1, 2):
        host.returns.on_message(Interrupt(number))
    assert reached == [70]
    host.way.taken()


def test_next_call_replaces_the_file_of_the_last(host: Host) -> None:
    program = add_program(host, 0)
    submit(host, 1, b"first")
    submit(host, 2, b"second")
    host.returns.on_message(EndCalls())
    assert program.sent == [CallReady(1), CallReady(2), EndCalls()]
    assert os.listdir(host.folder) == ["call-2"]
    assert add_program(host, 1).sent == [CallReady(2), EndCalls()]


@pytest.mark.parametrize("sizes", [[1 << 16] * 3, [(1 << 16) + 1]])
def test_call_without_room_is_reported_once(host: Host, sizes: list[int]) -> None:
    """Also if a part of its last piece has room."""
    program = add_program(host, 0)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, hard))
    try:
        for size in sizes:
            host.returns.on_message(frames.Raw("session", 1, bytes(size)))
        host.returns.on_message(MakeCall(1, None))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    [refused] = host.sent
    assert isinstance(refused, Refused)
    where = f"in {host.folder.parent} (TMPDIR)"
    assert refused.reason == f"the arguments of the function, {where}: File too large"
    assert program.sent == []


# --- what is due in a call ---


def answer(kind: str) -> Answer:
    return Answer(Returned(1, kind, ()))


def test_others_get_time_after_a_failure() -> None:
    progress = CallProgress(range(3), 0, 1)
    progress.record_answer(0, answer("value"), 1)
    assert progress.compute_wait_s(1) is None
    progress.record_answer(1, answer("raised"), 2)
    assert progress.running == [2]
    assert progress.compute_wait_s(2) == 2
    assert progress.pop_due(3.9) is Due.NOTHING
    assert progress.pop_due(4) is Due.ASK
    assert progress.pop_due(4) is Due.NOTHING  # until it is asked again
    progress.record_waiting([1], ["elsewhere"])
    assert progress.pop_due(4) is Due.NOTHING
    progress.record_waiting([2], ["in a barrier"])
    assert progress.pop_due(4) is Due.GIVE_UP


def test_interrupted_ranks_get_time_to_react() -> None:
    progress = CallProgress(range(2), 0, 1)
    progress.record_interrupt(1)
    progress.record_interrupt(3)
    assert progress.pop_due(3.9) is Due.NOTHING
    assert progress.pop_due(4) is Due.GIVE_UP


def test_equal_errors_are_told_once() -> None:
    texts = ["ValueError: a", "KeyError: b", "ValueError: a"]
    errors = [RankError(rank, text, f"at {text}", None) for rank, text in enumerate(texts)]
    told = "ranks 0,2 raised ValueError: a; rank 1 raised KeyError: b"
    assert describe_errors(errors) == told
    error = CallFailed(told, errors)
    assert error.__notes__ == ["ranks 0,2:\nat ValueError: a", "rank 1:\nat KeyError: b"]
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.errors, again.restarted) == (told, tuple(errors), False)


# --- words ---


def test_idle_rank_waits_for_a_call() -> None:
    run = run_of(1, joins=True).ranks[0]
    text = 'Stack (most recent call first):\n  File "<frozen runpy>", line 88 in _run_code\n'
    assert find_place(run, Stack(0, "host", 1, text)).where == "waiting for a call of the session"


def test_ranks_that_wait_for_others_are_told_with_what_they_are_in() -> None:
    """In JAX's functions or its barriers; not one that runs the user's code."""
    state = run_of(3, joins=True)
    state.ranks[2].membership.leaving_at = 3.0
    in_jax = '  File "/v/lib/python3.13/site-packages/jax/_src/array.py", line 642 in _value\n'
    own = '  File "/me/train.py", line 12 in step\n'
    at_exit = in_jax.replace("array", "distributed").replace("_value", "shutdown")
    stacks = [
        Stack(rank, "h", 70 + rank, "Stack (most recent call first):\n" + text)
        for rank, text in enumerate((in_jax + own, own, at_exit))
    ]
    written: list[bytes] = []
    values = SimpleNamespace(write=written.extend)
    part = ClientCalls(SimpleNamespace(state=state, events=SimpleNamespace(values=values)))
    part._report_waiting(stacks)
    [told] = frames.Decoder().feed(b"".join(written))
    assert told == Waiting((0, 2), ("in step at train.py:12", "in JAX's exit barrier"))

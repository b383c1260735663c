"""What JAX says in a rank that has lost another: on CPU as seen, on GPUs as XLA's source has it."""

import signal

import pytest
from records import end_of, failure, run_of, say

from mcjax_launch.diagnosis.sightings import Sighting, Stack
from mcjax_launch.diagnosis.summary import summarize
from mcjax_launch.jax_messages.lost_peer import is_of_lost_peer, says_ended_by_jax, says_timed_out
from mcjax_launch.kernel.wire import hook_messages as hook

GLOO = (
    "UNKNOWN: Gloo context initialization failed: DEADLINE_EXCEEDED: GetKeyValue() timed out with "
    "key: cpu:gloo/0,2048,4096/2 and duration: 29.9s"
)
# EnzymeAD/Enzyme-JAX 623; newer clique keys have a prefix.
CLIQUE = (
    "DEADLINE_EXCEEDED: GetKeyValue() timed out with key: {}devices=[0,1,2,3]; stream=0; "
    "root_device=0; num_local_participants=2 and duration: 10m"
)
# jax-ml/jax 19307
REMOTE = (
    "INTERNAL: NCCL operation ncclGroupEnd() failed: remote process exited or there was a network "
    "error. Last NCCL warning(error) log entry (may be unrelated) ''."
)
SYSTEM = (
    "INTERNAL: NCCL operation ncclCommInitRankConfig(&comm) failed: unhandled system error. Last "
    "NCCL warning(error) log entry (may be unrelated) 'Net : Connection closed by remote peer gpu1'."
)
CUDA = "INTERNAL: NCCL operation ncclCommInitRank(&comm) failed: unhandled cuda error"
OWN_KEY = "DEADLINE_EXCEEDED: GetKeyValue() timed out with key: my/config and duration: 10s"
STUCK = (
    "F0101 00:00:00.000000 7 rendezvous.cc:120] [id=3] Termination timeout for `initialize clique "
    "for rank 0; clique=devices=[0,1]` of 60 seconds exceeded. Exiting to ensure a consistent "
    "program state. Expected 1 threads to join the rendezvous, but only 0 of them arrived on time."
)
LOST = (
    "F1124 04:34:09.914083 7 client.h:86] Terminating process because the JAX distributed service "
    "detected fatal errors. This most likely indicates that another task died"
)
ASYNC = (
    "F0101 00:00:00.000000 7 gpu_cliques.cc:137] Terminating process due to async GPU clique "
    "error: INTERNAL: remote process exited or there was a network error"
)
WATCHDOG = (
    "F0101 00:00:00.000000 7 hang_watchdog.cc:80] jit_step: abort the process to avoid infinite "
    "hangs."
)


@pytest.mark.parametrize(("message", "is_victims"), [
    (GLOO, True), (CLIQUE.format(""), True), (CLIQUE.format("gpu:"), True), (REMOTE, True), (SYSTEM, True),
    ("FAILED_PRECONDITION: [0] NcclCommunicator aborted", True),
    ("FAILED_PRECONDITION: Task with incarnation id 77 is not connected", True),
    ("FAILED_PRECONDITION: Incarnation id 77 is stale", True),
    (CUDA, False), (OWN_KEY, False), ("INVALID_ARGUMENT: x", False),
])  # fmt: skip
def test_exceptions(message: str, is_victims: bool) -> None:
    assert is_of_lost_peer("JaxRuntimeError", message) == is_victims


def test_the_same_words_in_an_exception_of_the_programs_own() -> None:
    assert not is_of_lost_peer("ValueError", "Connection refused: incarnation id")


@pytest.mark.parametrize("text", [GLOO, CLIQUE.format("gpu:"), STUCK, WATCHDOG])
def test_a_peer_that_did_not_come_in_time(text: str) -> None:
    assert says_timed_out(text)


@pytest.mark.parametrize("text", [ASYNC, WATCHDOG])
def test_ended_by_xla(text: str) -> None:
    assert says_ended_by_jax(text)


@pytest.mark.parametrize(("text", "status"), [
    (WATCHDOG, -signal.SIGABRT), (STUCK, 42), (GLOO, 1), (CLIQUE.format("gpu:"), 1),
])  # fmt: skip
def test_the_one_that_did_not_come_is_to_blame(text: str, status: int) -> None:
    state = run_of(4, joins=True)
    for rank in (0, 1, 3):
        say(state, rank, hook.Program("jit_step", "f", None, (), "t.py:9"), 3.0)
    for rank in (0, 1):
        if status == 1:
            say(state, rank, failure(f"JaxRuntimeError: {text}"), 33.0)
        state.exited(end_of(rank, status), 33.0)
        state.ranks[rank].stderr = text
    for rank in (2, 3):  # rank 3 was ended before it could give up too
        state.exited(end_of(rank, -signal.SIGKILL, (signal.SIGTERM, signal.SIGKILL)), 34.0)
    first, *others = summarize(state).lines
    assert first == "rank 2 did not reach a collective in which others gave up waiting"
    assert "as a consequence" in others[0]
    state.ranks[2].stood = "in load at data.py:4"
    assert summarize(state).lines[0] == f"{first}; it was in load at data.py:4"
    say(state, 2, hook.Compiling("jit_step", "t.py:9", "cpu"), 2.5)
    assert summarize(state).lines[0] == (
        f"{first}; it was in load at data.py:4 and last compiled at t.py:9"
    )


SHARING = 'File "/v/site-packages/jax/_src/compiler.py", line 754 in _compile_and_share_module'
TUNING = 'File "/v/site-packages/jax/_src/compiler.py", line 310 in backend_compile'


@pytest.mark.parametrize(("frame", "idle_s", "words"), [
    (SHARING, 0.0, "jit(step) at t.py:9 for another rank's program (jax_share_binary_between_hosts is on)"),
    (TUNING, 20.0, "jit(step) at t.py:9 for another rank's program"),
    (TUNING, 3.0, ""),  # it compiles
])  # fmt: skip
def test_the_one_that_did_not_come_may_wait_in_a_compilation(
    frame: str, idle_s: float, words: str
) -> None:
    state = run_of(2, joins=True)
    say(state, 1, hook.Compiling("jit_step", "t.py:9", "cpu"), 3.0)
    state.ranks[1].compilations.used(0.0, 3.0 + idle_s)
    stack = Stack(1, "h", 7, f"Stack (most recent call first):\n  {frame}\n")
    found = Sighting(state.ranks[1], stack).shared_compilation
    assert found == (words and f"waiting in the compilation of {words}")
    state.ranks[1].stood = found
    say(state, 0, hook.Program("jit_step", "f", None, (), "t.py:9"), 3.0)
    say(state, 0, failure(f"JaxRuntimeError: {GLOO}"), 33.0)
    state.exited(end_of(0, 1), 33.0)
    state.exited(end_of(1, -signal.SIGKILL, (signal.SIGTERM, signal.SIGKILL)), 34.0)
    missed = "and so missed a collective in which others gave up waiting"
    line = summarize(state).lines[0]
    assert (line == f"rank 1 was {found}, {missed}") == bool(words)


def test_a_program_that_nobody_shares() -> None:
    key = f"jit__identity_fn-{'ae1dbf17' * 8}"
    said = f"JaxRuntimeError: DEADLINE_EXCEEDED: GetKeyValue() timed out with key: {key} and"
    state = run_of(1, joins=True)
    say(state, 0, failure(said), 33.0)
    state.exited(end_of(0, 1), 33.0)
    [hint] = [line for line in summarize(state).lines if line.startswith("hint: ")]
    assert hint.startswith("hint: with jax_share_binary_between_hosts one rank compiles for all")


@pytest.mark.parametrize(("status", "sent"), [
    (-signal.SIGABRT, ()),  # JAX's, as the coordinator is gone
    (-signal.SIGABRT, (signal.SIGTERM,)),
    (1, (signal.SIGTERM,)),  # by its own handler
])  # fmt: skip
def test_the_one_that_did_not_come_may_have_failed_since(
    status: int, sent: tuple[int, ...]
) -> None:
    state = run_of(3, joins=True)
    for rank in (0, 2):
        say(state, rank, hook.Program("jit_step", "f", None, (), "t.py:9"), 3.0)
    say(state, 0, failure(f"JaxRuntimeError: {GLOO}"), 33.0)
    state.exited(end_of(0, 1), 33.0)
    for rank in (1, 2):
        state.ranks[rank].stderr = LOST if status < 0 else ""
        state.exited(end_of(rank, status, sent), 34.0)
    first, *_ = summarize(state).lines
    assert first == "rank 1 did not reach a collective in which others gave up waiting"


def test_the_one_that_came_too_late_is_named_by_gloo() -> None:
    """By its device: all have come to the program by the time at which the first gives up."""
    state = run_of(3, joins=True)
    for rank in range(3):
        say(state, rank, hook.Program("jit_step", "f", None, (), "t.py:9"), 3.0)
    say(state, 0, failure(f"JaxRuntimeError: {GLOO}"), 33.0)
    state.exited(end_of(0, 1), 33.0)
    [first, *_] = summarize(state).lines
    assert first == "rank 2 did not reach a collective in which others gave up waiting"


@pytest.mark.parametrize("reached", [True, False])
def test_the_one_that_did_not_come_may_be_another_launchers(reached: bool) -> None:
    """Of two launchers' four ranks: none of these is blamed, unless it is known not to have come."""
    state = run_of(2, joins=True, num_processes=4)
    for rank in range(1 + reached):
        say(state, rank, hook.Program("jit_step", "f", None, (), "t.py:9"), 3.0)
    say(state, 0, failure(f"JaxRuntimeError: {GLOO}"), 33.0)
    state.exited(end_of(0, 1), 33.0)
    state.exited(end_of(1, -signal.SIGKILL, (signal.SIGTERM, signal.SIGKILL)), 34.0)
    lines = summarize(state).lines
    if reached:
        assert lines[0].startswith("rank 0 failed: JaxRuntimeError: UNKNOWN: Gloo context")
        assert lines[1].startswith("that is a consequence: a rank that another launcher started")
        assert not any("hint:" in line for line in lines)
    else:
        assert lines[0].startswith("rank 1 did not reach a collective")


def test_a_value_that_the_program_waits_for_is_its_own_affair() -> None:
    state = run_of(1, joins=True)
    say(state, 0, failure(f"JaxRuntimeError: {OWN_KEY}"), 33.0)
    state.exited(end_of(0, 1), 33.0)
    assert summarize(state).lines[0].startswith("rank 0 failed: JaxRuntimeError: DEADLINE_EXCEEDED")

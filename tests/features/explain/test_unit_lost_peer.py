"""What JAX says in a rank that has lost another: on CPU as seen, on GPUs as XLA's source has it."""

import signal

import pytest
from told import Event, Launched, Told, ends, fails, join, said

from mcjax_launch.features.explain.jax_messages.lost_peer import (
    is_of_lost_peer,
    says_ended_by_jax,
    says_timed_out,
)
from mcjax_launch.wire import hook_messages as hook

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
def test_exceptions_of_victims_are_recognized(message: str, is_victims: bool) -> None:
    assert is_of_lost_peer("JaxRuntimeError", message) == is_victims


def test_own_exception_with_the_same_words_is_no_victim() -> None:
    assert not is_of_lost_peer("ValueError", "Connection refused: incarnation id")


@pytest.mark.parametrize("text", [GLOO, CLIQUE.format("gpu:"), STUCK, WATCHDOG])
def test_timeout_for_a_peer_is_recognized(text: str) -> None:
    assert says_timed_out(text)


@pytest.mark.parametrize("text", [ASYNC, WATCHDOG])
def test_termination_by_xla_is_recognized(text: str) -> None:
    assert says_ended_by_jax(text)


MISSED = "did not reach a collective in which others gave up waiting"
KEY = f"jit__identity_fn-{'ae1dbf17' * 8}"
TERM = (signal.SIGTERM,)


def ran(*ranks: int) -> list[Event]:
    """These have come to a program of all."""
    return [Launched(rank, 1) for rank in ranks]


def gives_up(text: str = GLOO, status: int = 1) -> list[Event]:
    """Rank 0 does not wait for the others any longer."""
    if status != 1:
        return ends(0, status, text)
    return [*fails(0, f"JaxRuntimeError: {text}"), *ends(0, 1)]


def is_ended(*ranks: int) -> list[Event]:
    sent = (signal.SIGTERM, signal.SIGKILL)
    return [event for rank in ranks for event in ends(rank, -signal.SIGKILL, sent=sent)]


#: What three ranks do that have joined, and the first line of the summary.
BLAMED: dict[str, tuple[list[Event], str]] = {
    # rank 2 was ended before it could give up too
    **{
        f"one did not come: {text[:30]}": ([*ran(0, 2), *gives_up(text, status), *is_ended(1, 2)], f"rank 1 {MISSED}")
        for text, status in ((WATCHDOG, -signal.SIGABRT), (STUCK, 42), (GLOO, 1), (CLIQUE.format("gpu:"), 1))
    },
    "it compiled before": ([*said(1, hook.Compiling("jit_step", "t.py:9", "cpu")), *ran(0, 2), *gives_up(), *is_ended(1, 2)], f"rank 1 {MISSED}"),
    "JAX has ended it since": ([*ran(0, 2), *gives_up(), *ends(1, -signal.SIGABRT, LOST), *ends(2, -signal.SIGABRT, LOST)], f"rank 1 {MISSED}"),
    "JAX has, after a signal": ([*ran(0, 2), *gives_up(), *ends(1, -signal.SIGABRT, LOST, TERM), *ends(2, -signal.SIGABRT, LOST, TERM)], f"rank 1 {MISSED}"),
    "its own handler has": ([*ran(0, 2), *gives_up(), *ends(1, 1, sent=TERM), *ends(2, 1, sent=TERM)], f"rank 1 {MISSED}"),
    "it came too late": ([*ran(0, 1, 2), *gives_up()], f"rank 2 {MISSED}"),  # named by Gloo
    "a value of the program's own": (gives_up(OWN_KEY), f"rank 0 failed: JaxRuntimeError: {OWN_KEY}"),
}  # fmt: skip


@pytest.mark.parametrize("name", BLAMED)
def test_blamed_rank_is_the_cause(name: str) -> None:
    events, line = BLAMED[name]
    assert Told([*join(3), *events]).summary()[0] == line


def test_position_of_a_missing_rank_is_mentioned() -> None:
    told = Told([*join(3), *ran(0, 2), *gives_up(), *is_ended(1, 2)])
    told.state.ranks[1].late_position = "in load at data.py:4"
    first, others, *_ = told.summary()
    assert first == f"rank 1 {MISSED}; it was in load at data.py:4"
    assert "as a consequence" in others


def test_unshared_compilation_gets_a_hint() -> None:
    text = f"DEADLINE_EXCEEDED: GetKeyValue() timed out with key: {KEY} and"
    [hint] = [line for line in Told([*join(1), *gives_up(text)], 1).summary() if "hint: " in line]
    assert hint.startswith("hint: with jax_share_binary_between_hosts one rank compiles for all")


@pytest.mark.parametrize("reached", [True, False])
def test_missing_rank_of_another_launcher_is_not_blamed(reached: bool) -> None:
    """Of two launchers' four ranks: none of these is blamed, unless it is known not to have come."""
    events = [*ran(*range(1 + reached)), *gives_up(), *is_ended(1)]
    first, second, *others = Told([*join(2, size=4), *events], 2, num_processes=4).summary()
    if not reached:
        assert first == f"rank 1 {MISSED}"
        return
    assert first.startswith("rank 0 failed: JaxRuntimeError: UNKNOWN: Gloo context")
    assert second.startswith("this is a consequence: a rank of another launcher")
    assert not any("hint:" in line for line in others)

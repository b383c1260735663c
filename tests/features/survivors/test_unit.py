"""When a job goes on after a rank's failure (--on-rank-failure)."""

import pytest
from told import Event, Told, call, ends, join, said

from mcjax_launch.features.survivors.launcher import find_obstacle
from mcjax_launch.wire.hook_messages import Leaving, Left

SERVES = "process 0 holds JAX's coordination service, without which no other process can continue"
UNSERVED = "process 0 has ended, and JAX's coordination service with it: let process 0 end last"
AWAITED = "it failed before initialize(), where others wait for it"
UNASKED = (
    "the program has not enabled that: "
    'jax.config.update("jax_enable_recoverability", True) before initialize()'
)
JAX: list[Event] = join(3, recoverable=True)

#: What happened before, the rank that fails, and what stands against going on without it.
CASES: dict[str, tuple[list[Event], int, str]] = {
    "a program without JAX": ([], 1, ""),
    "a program that has asked for it": (JAX, 1, ""),
    "a program that has not": (join(3), 1, UNASKED),
    "process 0": (JAX, 0, SERVES),
    "process 0 has ended before": ([*JAX, *ends(0)], 1, UNSERVED),
    "it has left before": ([*JAX, *said(1, Leaving(), Left()), *ends(0)], 1, ""),
    "others wait for it in initialize()": ([call(0), call(2)], 1, AWAITED),
}


@pytest.mark.parametrize("name", CASES)
def test_obstacles_to_survival_are_found(name: str) -> None:
    history, rank, why = CASES[name]
    state = Told([*history, *ends(rank, 3)]).state
    assert find_obstacle(state, state.ranks[rank]) == why

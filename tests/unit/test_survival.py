"""When a job goes on after a rank's failure (--on-rank-failure)."""

import pytest
from told import Event, Told, call, ends, join, said

from mcjax_launch.launcher.survivors import find_obstacle
from mcjax_launch.options.kinds import parse_on_rank_failure
from mcjax_launch.wire.hook_messages import Leaving, Left

SERVES = "process 0 holds JAX's coordination service, without which no other process can continue"
UNSERVED = "process 0 has ended, and JAX's coordination service with it: let process 0 end last"
AWAITED = "it failed before initialize(), where others wait for it"
UNASKED = (
    "the program has not enabled that: "
    'jax.config.update("jax_enable_recoverability", True) before initialize()'
)
JAX: list[Event] = join(3, recoverable=True)

#: What happened before, the rank that fails, and what stands against going on without it, or
#: restarting it.
CASES: dict[str, tuple[list[Event], int, str, str]] = {
    "a program without JAX": ([], 1, "", ""),
    "a program that has asked for it": (JAX, 1, "", ""),
    "a program that has not": (join(3), 1, UNASKED, UNASKED),
    "process 0": (JAX, 0, SERVES, SERVES),
    "process 0 has ended before": ([*JAX, *ends(0)], 1, UNSERVED, UNSERVED),
    "it has left before": ([*JAX, *said(1, Leaving(), Left()), *ends(0)], 1, "", UNSERVED),
    "others wait for it in initialize()": ([call(0), call(2)], 1, AWAITED, ""),
}


@pytest.mark.parametrize("name", CASES)
def test_obstacles_to_survival_are_found(name: str) -> None:
    history, rank, without, again = CASES[name]
    state = Told([*history, *ends(rank, 3)]).state
    found = [
        find_obstacle(state, state.ranks[rank], restarts=restarts) for restarts in (False, True)
    ]
    assert found == [without, again]


def test_survival_option_is_parsed() -> None:
    for text in ("stop", "continue", "restart:7"):
        assert parse_on_rank_failure(text) == text
    assert parse_on_rank_failure("restart") == "restart:3"


@pytest.mark.parametrize("text", ["go", "stop:1", "continue:2", "restart:", "restart:0", "RESTART"])
def test_invalid_survival_option_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is"):
        parse_on_rank_failure(text)

"""What a rank's failure does to it and to the others, as histories: events in, decisions out."""

from typing import Any

import pytest

from mcjax_launch.kernel.launcher.survival import (
    BeginAgain,
    EndAll,
    FailedRank,
    GoOn,
    SurvivalPolicy,
)
from mcjax_launch.options.kinds import parse_on_rank_failure

PLAIN = FailedRank(1)
JAX = FailedRank(1, joined=True, recoverable=True)
SERVES = "process 0 holds JAX's coordination service, without which no other process can continue"
UNSERVED = "process 0 has ended, and JAX's coordination service with it: let process 0 end last"
AWAITED = "it failed before initialize(), where others wait for it"
ALL_TOGETHER = "the ranks have already been restarted 4 times in all"
UNASKED = (
    "the program has not enabled that: "
    'jax.config.update("jax_enable_recoverability", True) before initialize()'
)

#: For each option: a first failure, and what follows from it.
FIRST: dict[str, tuple[str, FailedRank, Any]] = {
    "a program without JAX": ("continue", PLAIN, GoOn(1)),
    "process 0": (
        "continue",
        FailedRank(0, joined=True, runs_service=True, recoverable=True),
        EndAll(SERVES),
    ),
    "process 0 has ended before": ("restart:3", JAX.copy_with(unserved=True), EndAll(UNSERVED)),
    "it has left before that, and has to come": (
        "restart:3",
        FailedRank(1, unserved=True),
        EndAll(UNSERVED),
    ),
    "it has left before that, and need not": ("continue", FailedRank(1, unserved=True), GoOn(1)),
    "a program that has not asked for it": (
        "restart:3",
        FailedRank(1, joined=True),
        EndAll(UNASKED),
    ),
    "others wait for it in initialize()": (
        "continue",
        FailedRank(1, awaited=True),
        EndAll(AWAITED),
    ),
}


@pytest.mark.parametrize("name", FIRST)
def test_first_failure_is_survived_as_configured(name: str) -> None:
    option, loss, effect = FIRST[name]
    assert SurvivalPolicy(option).decide_on_failure(loss) == effect


#: For each option: a step is a method, its arguments, and what it returns.
HISTORIES: dict[str, tuple[str, list[tuple[str, tuple[Any, ...], Any]]]] = {
    "several, one after another, each known before its end": (
        "continue",
        [
            ("decide_on_failure", (JAX,), GoOn(1)),
            ("decide_on_failure", (JAX,), None),
            ("record_end", (1, 1.0), None),
            ("decide_on_failure", (JAX.copy_with(rank=2),), GoOn(2)),
        ],
    ),
    "others will wait for it in initialize()": (
        "continue",
        [
            ("decide_on_failure", (PLAIN,), GoOn(1)),
            ("judge_call", ([],), ""),
            ("judge_call", ([1],), "rank 1 failed before initialize(), where others wait"),
        ],
    ),
    "or for its next life": (
        "restart:1",
        [
            ("decide_on_failure", (FailedRank(0, awaited=True),), BeginAgain(0, 1.0, 1, 1)),
            ("judge_call", ([0],), ""),
        ],
    ),
    "it is started again after its end, and ever later": (
        "restart:2",
        [
            ("decide_on_failure", (JAX,), BeginAgain(1, 1.0, 1, 2)),
            ("expire", (100.0,), {}),
            ("record_end", (1, 100.0), None),
            ("expire", (100.9,), {}),
            ("expire", (101.0,), {1: 1}),
            ("decide_on_failure", (JAX,), BeginAgain(1, 2.0, 2, 2)),
            ("record_end", (1, 110.0), None),
            ("expire", (112.0,), {1: 2}),
            ("decide_on_failure", (JAX,), EndAll("it has already been restarted 2 times")),
        ],
    ),
    "an end with 0 is followed by none": (
        "restart:2",
        [("record_end", (1, 1.0), None), ("expire", (100.0,), {})],
    ),
    "all ranks together": (
        "restart:1",
        [
            *(
                ("decide_on_failure", (FailedRank(rank),), BeginAgain(rank, 1.0, 1, 1))
                for rank in range(4)
            ),
            ("decide_on_failure", (FailedRank(4),), EndAll(ALL_TOGETHER)),
        ],
    ),
    "their host is lost, where one was about to be started again": (
        "restart:3",
        [
            ("decide_on_failure", (JAX,), BeginAgain(1, 1.0, 1, 3)),
            ("record_end", (1, 10.0), None),
            ("decide_on_failure", (JAX.copy_with(rank=2),), BeginAgain(2, 1.0, 1, 3)),
            ("cancel_restarts", ([1, 2, 3],), [1]),
            ("expire", (100.0,), {}),
            ("record_restart", (1,), 1),
            ("record_restart", (2,), 1),
            ("decide_on_failure", (JAX,), BeginAgain(1, 2.0, 2, 3)),
        ],
    ),
}


@pytest.mark.parametrize("name", HISTORIES)
def test_later_failures_are_survived_as_configured(name: str) -> None:
    option, history = HISTORIES[name]
    policy = SurvivalPolicy(option)
    for method, arguments, effects in history:
        assert getattr(policy, method)(*arguments) == effects, (method, arguments)


def test_the_deadline_is_the_next_start() -> None:
    policy = SurvivalPolicy("restart:3")
    assert policy.deadline is None
    for rank, at in ((1, 10.0), (2, 5.0)):
        policy.decide_on_failure(FailedRank(rank))
        policy.record_end(rank, at)
    assert policy.deadline == 6.0
    policy.expire(6.0)
    assert policy.deadline == 11.0


def test_survival_option_is_parsed() -> None:
    for text in ("stop", "continue", "restart:7"):
        assert parse_on_rank_failure(text) == text
    assert parse_on_rank_failure("restart") == "restart:3"


@pytest.mark.parametrize("text", ["go", "stop:1", "continue:2", "restart:", "restart:0", "RESTART"])
def test_invalid_survival_option_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is"):
        parse_on_rank_failure(text)

"""Which failures are worth another attempt: pairs of attempts, and what has ended one."""

import pytest
from records import attempt_of, run_of

from mcjax_launch.journal import stop_reasons
from mcjax_launch.journal.state import RunState
from mcjax_launch.launcher.restarts import Crash, explain_no_restart, find_crash
from mcjax_launch.wire.hook_messages import Failed, Joining
from mcjax_launch.wire.messages import Exited, FromHook, Started

BUG = Crash("ValueError", "/work/train.py:18 in load", joined=True, age_s=10.0)
ABORTED = (
    "F1 client.h:80] Terminating process because the JAX distributed service detected fatal errors"
)
TWICE = "not restarted: ValueError at /work/train.py:18 in load twice in a row, "
#: The ends of two attempts, and what is said of the last; "": another one.
PAIRS: dict[str, tuple[Crash | None, Crash | None, str]] = {
    "another end": (None, None, ""),
    "the first exception": (None, BUG, ""),
    "an exception, and another end": (BUG, None, ""),
    "twice": (BUG, BUG.copy_with(age_s=11.0), f"{TWICE}10 s and 11 s after initialize(): "),
    "twice, before initialize()": (
        BUG.copy_with(joined=False),
        BUG.copy_with(joined=False),
        f"{TWICE}10 s and 10 s after the start: ",
    ),
    "twice, after a long time": (BUG.copy_with(age_s=90.0), BUG.copy_with(age_s=120.0), TWICE),
    "later": (BUG, BUG.copy_with(age_s=20.0), ""),
    "sooner": (BUG, BUG.copy_with(age_s=5.0), ""),
    "elsewhere": (BUG, BUG.copy_with(where="/work/train.py:19"), ""),
    "another": (BUG, BUG.copy_with(exception="KeyError"), ""),
}


@pytest.mark.parametrize("name", PAIRS)
def test_a_job_that_fails_twice_alike_is_not_restarted(name: str) -> None:
    before, now, said = PAIRS[name]
    why = explain_no_restart(before, now)
    assert why.startswith(said) and bool(why) == bool(said)


def ended(status: int, *hook: Failed | Joining, stderr: str = "") -> Crash | None:
    state = run_of(2, "a", "b")
    state.on_started(Started(1, 7), 1.0)
    for said in hook:
        state.on_from_hook(FromHook(1, said), 3.0)
    state.ranks[1].stderr = stderr
    state.on_exited(Exited(1, status, (), None, 0.0, 0), 3.0)
    state.on_exited(Exited(0, -15, (15,), None, 0.0, 0), 4.0)
    return find_crash(attempt_of(state))


RAISED = Crash("ValueError", "t.py:1", joined=False, age_s=2.0)


@pytest.mark.parametrize(
    ("end", "known"),
    [
        (lambda: ended(-9), None),
        (lambda: ended(-6, stderr=ABORTED), None),
        (lambda: ended(-6, Joining("h:1", 2, 1), stderr=ABORTED), None),
        (lambda: ended(3), None),
        (lambda: ended(3, Failed(3, False, exited=True, where="t.py:1")), None),
        (lambda: ended(1, Failed(1, False, False, "ValueError", where="t.py:1")), RAISED),
        (lambda: ended(-9, Failed(1, True, False, "ValueError", where="t.py:1")), RAISED),
    ],
    ids=[
        "a signal",
        "JAX's signal",
        "JAX's signal, for a rank that never came",
        "an exit",
        "an exit at a line",
        "an exception",
        "an exception, and JAX held up the exit",
    ],
)
def test_exception_that_has_ended_an_attempt_is_found(end: object, known: Crash | None) -> None:
    assert end() == known  # type: ignore[operator]


def test_attempt_without_a_failed_rank_has_no_crash() -> None:
    state = RunState()
    state.on_stop_reason(stop_reasons.host_lost("b", "gone"), 1.0)
    assert find_crash(attempt_of(state)) is None

"""Which failures are worth another attempt, as histories of attempts."""

import pytest
from records import attempt_of, run_of

from mcjax_launch.diagnosis.summary import summarize_failed_start
from mcjax_launch.job.hosts import Host
from mcjax_launch.launcher.restarts import AttemptEnd, Crash, RestartPolicy, classify_end
from mcjax_launch.options.kinds import parse_restart_on
from mcjax_launch.runs import hook_events, stop_reasons
from mcjax_launch.runs.state import RunState
from mcjax_launch.wire.hook_messages import Failed, Joining
from mcjax_launch.wire.messages import Exited, FromHook

BUG = Crash("ValueError", "/work/train.py:18 in load", joined=True, age_s=10.0)
OTHER, HOST, SIGNAL = AttemptEnd("other"), AttemptEnd("host", ("b",)), AttemptEnd("signal", ("a",))


def crash(**changes: object) -> AttemptEnd:
    return AttemptEnd("other", crash=BUG.copy_with(**changes))


ABORTED = (
    "F1 client.h:80] Terminating process because the JAX distributed service detected fatal errors"
)
TWICE = "not restarted: ValueError at /work/train.py:18 in load twice in a row, "
#: By what --restart-on says: the ends of attempts, and what is said of the last; "": another one.
HISTORIES: dict[str, tuple[str, list[AttemptEnd], str]] = {
    "any failure": ("any", [OTHER, OTHER, SIGNAL, HOST], ""),
    "one exception": ("any", [crash()], ""),
    "twice": ("any", [crash(), crash(age_s=11.0)], f"{TWICE}10 s and 11 s after initialize(): "),
    "twice, before initialize()": (
        "any",
        [crash(joined=False), crash(joined=False)],
        f"{TWICE}10 s and 10 s after the start: ",
    ),
    "twice, after a long time": ("any", [crash(age_s=90.0), crash(age_s=120.0)], TWICE),
    "later": ("any", [crash(), crash(age_s=20.0)], ""),
    "sooner": ("any", [crash(), crash(age_s=5.0)], ""),
    "sooner, twice": ("any", [crash(), crash(age_s=5.0), crash(age_s=5.5)], TWICE),
    "elsewhere": ("any", [crash(), crash(where="/work/train.py:19")], ""),
    "another": ("any", [crash(), crash(exception="KeyError")], ""),
    "not in a row": ("any", [crash(), SIGNAL, crash()], ""),
    "host, and a host": ("host", [HOST], ""),
    "host, and a signal": ("host", [SIGNAL], "not restarted: --restart-on host is for a lost host"),
    "two of three": (
        "host,signal",
        [SIGNAL, OTHER],
        "not restarted: --restart-on host,signal is for a lost host or a signal",
    ),
}


@pytest.mark.parametrize("name", HISTORIES)
def test_restarts_follow_the_policy(name: str) -> None:
    option, ends, said = HISTORIES[name]
    policy = RestartPolicy(parse_restart_on(option))
    assert [policy.record_failed_attempt(end) for end in ends[:-1]] == [""] * (len(ends) - 1)
    last = policy.record_failed_attempt(ends[-1])
    assert last.startswith(said) and bool(last) == bool(said)


def test_host_is_excluded_after_two_failures() -> None:
    policy = RestartPolicy(("any",))
    for end, worn in ((HOST, set()), (SIGNAL, set()), (OTHER, set()), (HOST, {"b"})):
        policy.record_failed_attempt(end)
        assert policy.worn_out == worn


@pytest.mark.parametrize("text", ["", "host,", "hosts", "any,bug"])
def test_invalid_restart_on_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a list of words from host, signal, any"):
        parse_restart_on(text)


def ended(status: int, *hook: Failed | Joining, stderr: str = "") -> AttemptEnd:
    state = run_of(2, "a", "b")
    state.record_start(1, 7, 1.0)
    for said in hook:
        hook_events.apply(state, FromHook(1, said), 3.0)
    state.ranks[1].stderr = stderr
    state.record_exit(Exited(1, status, (), None, 0.0, 0), 3.0)
    state.record_exit(Exited(0, -15, (15,), None, 0.0, 0), 4.0)
    return classify_end(attempt_of(state), ())


@pytest.mark.parametrize(
    ("end", "known"),
    [
        (lambda: ended(-9), AttemptEnd("signal", ("b",))),
        (lambda: ended(-6, stderr=ABORTED), OTHER),
        (lambda: ended(-6, Joining("h:1", 2, 1), stderr=ABORTED), OTHER),
        (lambda: ended(3), OTHER),
        (lambda: ended(3, Failed(3, False, exited=True, where="t.py:1")), OTHER),
        (
            lambda: ended(1, Failed(1, False, False, "ValueError", where="t.py:1")),
            AttemptEnd("other", crash=Crash("ValueError", "t.py:1", False, 2.0)),
        ),
        (
            lambda: ended(-9, Failed(1, True, False, "ValueError", where="t.py:1")),
            AttemptEnd("other", crash=Crash("ValueError", "t.py:1", False, 2.0)),
        ),
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
def test_end_of_an_attempt_is_classified_by_its_rank(end: object, known: AttemptEnd) -> None:
    assert end() == known  # type: ignore[operator]


def test_end_of_an_attempt_without_a_failed_rank_is_classified() -> None:
    state, lost = RunState(), [Host(name="b", slots=1)]
    away = attempt_of(state, summarize_failed_start("host b: timed out", 255))
    assert classify_end(away, lost) == HOST
    state.record_stop(stop_reasons.host_lost("b", "gone"), 1.0)
    assert classify_end(attempt_of(state), lost) == HOST
    state = RunState()
    state.record_stop(stop_reasons.out_of_time("--stall-timeout", [], final=False), 1.0)
    assert classify_end(attempt_of(state), ()) == OTHER

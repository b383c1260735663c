"""Why and how a job ends, as histories: what happens, and what the launcher does about it."""

import signal
from typing import Any

import pytest

from mcjax_launch.errors import LaunchError
from mcjax_launch.kernel.launcher.stop_policy import (
    READER_S,
    SIGNAL_S,
    Note,
    RankFailure,
    SetReason,
    ShowStacks,
    StopPolicy,
    StopRanks,
)
from mcjax_launch.runs.stop_reasons import StopReason

INT, TERM, HUP, KILL = signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL
GRACES = {"failure": 2.0, "INT": 5.0, "TERM": 30.0, "HUP": 30.0}

BY_INT = StopReason("stopped by SIGINT", 130, told=True)
BY_TERM = StopReason("stopped by SIGTERM", 143, told=True)
LOST = StopReason("host b: no heartbeat for 12 s", 255, final=False)
GONE = StopReason("stopped: the reader of stdout is gone", 141, unread=True)
FULL = StopReason("stdout cannot be written: No space left on device", 141)
AGENT = StopReason("host a: its agent was stopped by SIGTERM", 255)
TIMEOUT = StopReason("--timeout: still running after 5 s", 124, needs_stacks=True)
PARTED = StopReason("--verify-spmd: the ranks run different programs", 1)
PARTED_HOW = StopReason(PARTED.message, 1, ("program #2: ...",))
ERROR = LaunchError("host a: no Python", 255)

INT_NOTE = Note(
    "SIGINT forwarded to the ranks; 5 s to exit, press again to kill now; "
    "Ctrl-\\ shows where they are"
)
AGENT_NOTE = Note(f"{AGENT.message}: SIGTERM to the ranks; 30 s to exit")
TERM_NOTE = Note(
    "SIGTERM forwarded to the ranks; 30 s to exit (--grace), send it again to kill them now"
)
CAUGHT_NOTE = Note(TERM_NOTE.text.replace("the ranks;", "the ranks, where JAX catches it;"))
FULL_NOTE = Note(f"{FULL.message}: SIGTERM to the ranks; 30 s to exit")

OWN, VICTIM = RankFailure(1), RankFailure(2, is_victim=True)
SIGNALLED = RankFailure(3, is_signalled=True)
FAILED = StopRanks(TERM, 2.0, 1)
QUICK = StopRanks(TERM, 2.0)
USER_INT, USER_INT_NOW = StopRanks(INT, 5.0, by_user=True), StopRanks(INT, 0.0, by_user=True)
USER_TERM = StopRanks(TERM, 30.0, by_user=True)
LONG = StopRanks(TERM, 30.0)


def interrupt(
    signum: int, at: float, *, nothing_left: bool = False, caught: bool = False
) -> tuple[Any, ...]:
    return "interrupted", (signum, at), {"nothing_left": nothing_left, "caught": caught}


RUN = ("ranks_starting",)
#: A step is a method, its arguments, and what it returns.
HISTORIES: dict[str, list[tuple[tuple[Any, ...], Any]]] = {
    "a rank fails": [
        (RUN, None),
        (("rank_ended", (OWN,)), [FAILED]),
        (("rank_ended", (RankFailure(2),)), []),
    ],
    "a victim is seen first: nobody's messages are kept for it": [
        (RUN, None),
        (("rank_ended", (VICTIM,)), [QUICK]),
    ],
    "INT": [
        (RUN, None),
        (interrupt(INT, 1.0), [INT_NOTE, SetReason(BY_INT), USER_INT]),
        (("rank_ended", (OWN,)), []),
    ],
    "INT twice kills now": [
        (RUN, None),
        (interrupt(INT, 1.0), [INT_NOTE, SetReason(BY_INT), USER_INT]),
        (interrupt(INT, 2.0), [USER_INT_NOW]),
        (("gives_up", (2.0,)), False),
    ],
    "INT twice where nothing is left stops waiting for the reader": [
        (RUN, None),
        (interrupt(INT, 1.0), [INT_NOTE, SetReason(BY_INT), USER_INT]),
        (interrupt(INT, 2.0, nothing_left=True), [USER_INT_NOW]),
        (("gives_up", (2.0,)), True),
    ],
    "INT three times leaves": [
        (RUN, None),
        (interrupt(INT, 1.0), [INT_NOTE, SetReason(BY_INT), USER_INT]),
        (interrupt(INT, 2.0), [USER_INT_NOW]),
        (interrupt(INT, 3.0), [USER_INT_NOW]),
        (("gives_up", (3.0,)), True),
    ],
    "TERM during start-up needs no grace": [
        (interrupt(TERM, 1.0), [SetReason(BY_TERM), StopRanks(TERM, 0.0, by_user=True)]),
    ],
    "TERM, then a rank fails over it": [
        (RUN, None),
        (interrupt(TERM, 1.0), [TERM_NOTE, SetReason(BY_TERM), USER_TERM]),
        (("rank_ended", (None,)), []),
    ],
    "a signal after a failure hastens the end and changes no reason but its own": [
        (RUN, None),
        (("rank_ended", (OWN,)), [FAILED]),
        (interrupt(INT, 1.0), [USER_INT]),
    ],
    "the reader goes away": [
        (RUN, None),
        (("may_be_stopped", (GONE, 1.0)), [SetReason(GONE)]),
        (("expire", (1.0,)), []),
        (("expire", (1.0 + SIGNAL_S,)), [QUICK]),
        (("expire", (9.0,)), []),
    ],
    "the disk is full": [
        (RUN, None),
        (("may_be_stopped", (FULL, 1.0)), [SetReason(FULL)]),
        (("expire", (1.0 + SIGNAL_S,)), [FULL_NOTE, LONG]),
    ],
    "TERM that JAX catches": [
        (RUN, None),
        (interrupt(TERM, 1.0, caught=True), [CAUGHT_NOTE, SetReason(BY_TERM), USER_TERM]),
    ],
    "TERM, and then all that is left waits for a rank that is gone": [
        (RUN, None),
        (interrupt(TERM, 1.0), [TERM_NOTE, SetReason(BY_TERM), USER_TERM]),
        (("only_waits",), [QUICK]),
        (("only_waits",), []),
    ],
    "the reader goes away, and then comes INT": [
        (RUN, None),
        (("may_be_stopped", (GONE, 1.0)), [SetReason(GONE)]),
        (interrupt(INT, 1.1), [INT_NOTE, SetReason(BY_INT), USER_INT]),
        (("expire", (1.0 + SIGNAL_S,)), []),
    ],
    "the reader goes away, and long after that comes INT": [
        (RUN, None),
        (("may_be_stopped", (GONE, 1.0)), [SetReason(GONE)]),
        (("expire", (1.0 + SIGNAL_S,)), [QUICK]),
        (interrupt(INT, 2.0), [USER_INT]),
    ],
    "an agent is ended from outside and all is over before a signal can come": [
        (RUN, None),
        (("may_be_stopped", (AGENT, 1.0)), [SetReason(AGENT)]),
    ],
    "an agent is ended from outside before any rank is started": [
        (("may_be_stopped", (AGENT, 1.0)), [SetReason(AGENT)]),
        (("expire", (1.0 + SIGNAL_S,)), [AGENT_NOTE, LONG]),
    ],
    "an agent is ended from outside, and its ranks end of what it sends them": [
        (RUN, None),
        (("may_be_stopped", (AGENT, 1.0)), [SetReason(AGENT)]),
        (("rank_ended", (None,)), []),  # the grace of a TERM is theirs
        (("rank_ended", (SIGNALLED,)), []),
        (("rank_ended", (VICTIM,)), []),
        (("expire", (1.0 + SIGNAL_S,)), [AGENT_NOTE, LONG]),
    ],
    "an agent is ended from outside, and a rank fails over it": [
        (RUN, None),
        (("may_be_stopped", (AGENT, 1.0)), [SetReason(AGENT)]),
        (("rank_ended", (OWN,)), [FAILED]),
        (("expire", (1.0 + SIGNAL_S,)), [LONG]),
    ],
    "an agent is ended from outside, and then it is lost": [
        (RUN, None),
        (("may_be_stopped", (AGENT, 1.0)), [SetReason(AGENT)]),
        (("stopped", (LOST,)), [QUICK]),
    ],
    "an agent and the launcher are ended from outside": [
        (RUN, None),
        (("may_be_stopped", (AGENT, 1.0)), [SetReason(AGENT)]),
        (("rank_ended", (None,)), []),
        (interrupt(TERM, 1.1), [TERM_NOTE, SetReason(BY_TERM), USER_TERM]),
    ],
    "a rank is ended by the signal that its agent gets a moment later": [
        (RUN, None),
        (("rank_ended", (SIGNALLED,)), [StopRanks(TERM, 2.0, 3)]),
        (("may_be_stopped", (AGENT, 1.0)), [SetReason(AGENT)]),
    ],
    "a rank fails, and its agent is ended a moment later": [
        (RUN, None),
        (("rank_ended", (OWN,)), [FAILED]),
        (("may_be_stopped", (AGENT, 1.0)), []),
    ],
    "a host is lost": [
        (RUN, None),
        (("stopped", (LOST,)), [SetReason(LOST), QUICK]),
    ],
    "a host is lost during the grace": [
        (RUN, None),
        (interrupt(INT, 1.0), [INT_NOTE, SetReason(BY_INT), USER_INT]),
        (("stopped", (LOST,)), [QUICK]),
    ],
    "a host is lost after a failure": [
        (RUN, None),
        (("rank_ended", (OWN,)), [FAILED]),
        (("stopped", (LOST,)), [QUICK]),
    ],
    "a host is lost, and its victims were seen before": [
        (RUN, None),
        (("rank_ended", (VICTIM,)), [QUICK]),
        (("stopped", (LOST,)), [SetReason(LOST), QUICK]),
        (interrupt(INT, 1.0), [USER_INT]),
    ],
    "a victim, the one that took it down, and a lost host": [
        (RUN, None),
        (("rank_ended", (VICTIM,)), [QUICK]),
        (("rank_ended", (OWN,)), []),
        (("stopped", (LOST,)), [QUICK]),
    ],
    "a victim is seen first, and then comes INT": [
        (RUN, None),
        (("rank_ended", (VICTIM,)), [QUICK]),
        (interrupt(INT, 1.0), [USER_INT]),
    ],
    "ranks end of what a scheduler sends to their agent, before it can say so": [
        (RUN, None),
        (("rank_ended", (None,)), [QUICK]),
        (("may_be_stopped", (AGENT, 1.0)), [SetReason(AGENT)]),
    ],
    "a timeout": [
        (RUN, None),
        (("limit_reached", (TIMEOUT,)), [SetReason(TIMEOUT), ShowStacks()]),
        (("stacks_shown",), [QUICK]),
    ],
    "a timeout whose stacks do not come before INT": [
        (RUN, None),
        (("limit_reached", (TIMEOUT,)), [SetReason(TIMEOUT), ShowStacks()]),
        (interrupt(INT, 1.0), [INT_NOTE, USER_INT]),
        (("stacks_shown",), []),
    ],
    "a timeout while the job ends": [
        (RUN, None),
        (("rank_ended", (OWN,)), [FAILED]),
        (("limit_reached", (TIMEOUT,)), []),
    ],
    "stacks that the user asked for end nothing": [
        (RUN, None),
        (("stacks_shown",), []),
    ],
    "a timeout while the reader's end waits for a signal": [
        (RUN, None),
        (("may_be_stopped", (GONE, 1.0)), [SetReason(GONE)]),
        (("limit_reached", (TIMEOUT,)), []),
    ],
    "ranks diverge, and fail over it before more is known": [
        (RUN, None),
        (("reason_known", (PARTED,)), [SetReason(PARTED)]),
        (("rank_ended", (OWN,)), [FAILED]),
        (("limit_reached", (PARTED_HOW,)), [SetReason(PARTED_HOW)]),
    ],
    "ranks diverge after a failure": [
        (RUN, None),
        (("rank_ended", (OWN,)), [FAILED]),
        (("reason_known", (PARTED,)), []),
        (("limit_reached", (PARTED_HOW,)), []),
    ],
    "ranks diverge, and are stopped": [
        (RUN, None),
        (("reason_known", (PARTED,)), [SetReason(PARTED)]),
        (("limit_reached", (PARTED_HOW,)), [SetReason(PARTED_HOW), QUICK]),
    ],
    "a limit that needs no stacks": [
        (RUN, None),
        (("limit_reached", (PARTED,)), [SetReason(PARTED), QUICK]),
    ],
    "it cannot be started": [
        (("start_failed", (ERROR,)), [StopRanks(KILL, 0.0)]),
        (("stopped", (LOST,)), []),
    ],
    "it cannot be started after INT": [
        (interrupt(INT, 1.0), [SetReason(BY_INT), USER_INT_NOW]),
        (("start_failed", (ERROR,)), [StopRanks(KILL, 0.0)]),
    ],
    "the reader goes away while a failure ends the job": [
        (RUN, None),
        (("rank_ended", (OWN,)), [FAILED]),
        (("may_be_stopped", (GONE, 1.0)), []),
        (("expire", (1.0 + SIGNAL_S,)), [QUICK]),
    ],
    "the last output of a job that failed waits for its reader": [
        (RUN, None),
        (("rank_ended", (OWN,)), [FAILED]),
        (("nothing_left", (2.0,)), None),
        (("gives_up", (1e6,)), False),
    ],
    "the last output of a job that was stopped waits for its reader, but not for ever": [
        (RUN, None),
        (("nothing_left", (0.5,)), None),
        (("gives_up", (60.0,)), False),
        (interrupt(INT, 1.0), [INT_NOTE, SetReason(BY_INT), USER_INT]),
        (("nothing_left", (2.0,)), None),
        (("nothing_left", (3.0,)), None),
        (("gives_up", (2.0 + READER_S - 0.1,)), False),
        (("gives_up", (2.0 + READER_S,)), True),
    ],
}


@pytest.mark.parametrize("history", HISTORIES.values(), ids=HISTORIES)
def test_history(history: list[tuple[tuple[Any, ...], Any]]) -> None:
    policy = StopPolicy(GRACES.__getitem__)
    for (method, *arguments), expected in history:
        args = arguments[0] if arguments else ()
        keywords = arguments[1] if len(arguments) > 1 else {}
        assert getattr(policy, method)(*args, **keywords) == expected, method


def test_an_error_is_kept_unless_there_was_a_reason_before() -> None:
    policy = StopPolicy(GRACES.__getitem__)
    policy.start_failed(ERROR)
    policy.start_failed(LaunchError("another"))
    assert policy.error is ERROR
    policy = StopPolicy(GRACES.__getitem__)
    policy.interrupted(INT, 1.0, nothing_left=False)
    policy.start_failed(ERROR)
    assert policy.error is None


def test_the_deadline_is_that_of_what_waits() -> None:
    policy = StopPolicy(GRACES.__getitem__)
    policy.ranks_starting()
    assert policy.deadline is None
    policy.may_be_stopped(GONE, 1.0)
    assert policy.deadline == 1.0 + SIGNAL_S
    policy.expire(2.0)
    assert policy.deadline is None
    policy.nothing_left(3.0)
    assert policy.deadline == 3.0 + READER_S


@pytest.mark.parametrize(
    ("events", "final"),
    [
        ([("rank_ended", (OWN,))], False),
        ([("rank_ended", (OWN,)), ("stopped", (LOST,))], False),
        ([("rank_ended", (OWN,)), ("stopped", (GONE,))], True),
        ([("stopped", (LOST,)), ("stopped", (BY_INT,))], True),
        ([("stopped", (LOST,))], False),
        ([("limit_reached", (TIMEOUT,))], True),
    ],
)
def test_what_is_not_started_again(events: list[tuple[str, tuple[Any, ...]]], final: bool) -> None:
    policy = StopPolicy(GRACES.__getitem__)
    for method, args in events:
        getattr(policy, method)(*args)
    assert policy.final == final

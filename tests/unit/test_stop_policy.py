"""Why and how a job ends, as histories: what happens, and what the launcher does about it."""

import signal
from typing import Any

import pytest

from mcjax_launch.errors import LaunchError
from mcjax_launch.journal.stop_reasons import StopReason
from mcjax_launch.launcher.stop_policy import (
    ENDS_S,
    READER_S,
    SIGNAL_S,
    Note,
    RankFailure,
    SetReason,
    ShowStacks,
    StopPolicy,
    StopRanks,
)

INT, TERM, HUP, KILL = signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL
GRACES = {"failure": 2.0, "INT": 5.0, "TERM": 30.0, "HUP": 30.0}

BY_INT = StopReason("stopped by SIGINT", 130, is_external=True)
BY_TERM = StopReason("stopped by SIGTERM", 143, is_external=True)
LOST = StopReason("host b: no heartbeat for 12 s", 255, final=False)
GONE = StopReason("stopped: the reader of stdout is gone", 141, unread=True)
FULL = StopReason("stdout cannot be written: No space left on device", 141)
AGENT = StopReason("host a: its agent was stopped by SIGTERM", 255)
TIMEOUT = StopReason("--timeout: still running after 5 s", 124, needs_stacks=True)
PARTED = StopReason("--verify-spmd: the ranks run different programs", 1)
ERROR = LaunchError("host a: no Python", 255)

INT_NOTE = Note(
    "SIGINT sent to the ranks: they have 5 s to exit; press again to kill them now; "
    "Ctrl-\\ shows where they are"
)
AGENT_NOTE = Note(f"{AGENT.message}: SIGTERM to the ranks; 30 s to exit")
TERM_NOTE = Note(
    "SIGTERM sent to the ranks: they have 30 s to exit (--grace); send it again to kill them now"
)
CAUGHT_NOTE = Note(TERM_NOTE.text.replace("the ranks:", "the ranks, where JAX catches it:"))
FULL_NOTE = Note(f"{FULL.message}: SIGTERM to the ranks; 30 s to exit")

OWN, VICTIM = RankFailure(1), RankFailure(2, is_victim=True)
SIGNALLED = RankFailure(3, is_signalled=True)
QUICK = StopRanks(TERM, 2.0)
USER_INT, USER_INT_NOW = StopRanks(INT, 5.0, by_user=True), StopRanks(INT, 0.0, by_user=True)
USER_TERM = StopRanks(TERM, 30.0, by_user=True)
LONG = StopRanks(TERM, 30.0)


def interrupt(
    signum: int, at: float, *, nothing_left: bool = False, caught: bool = False
) -> tuple[Any, ...]:
    return "on_interrupt", (signum, at), {"nothing_left": nothing_left, "caught": caught}


Steps = list[tuple[tuple[Any, ...], Any]]
#: A step is a method, its arguments, and what it returns. What happens before any rank is started:
EARLY: dict[str, Steps] = {
    "TERM needs no grace": [
        (interrupt(TERM, 1.0), [SetReason(BY_TERM), StopRanks(TERM, 0.0, by_user=True)]),
    ],
    "an agent is ended from outside": [
        (("record_unexplained_stop", (AGENT, 1.0)), [SetReason(AGENT)]),
        (("expire", (1.0 + SIGNAL_S,)), [AGENT_NOTE, LONG]),
    ],
    "it cannot be started": [
        (("on_start_failure", (ERROR,)), [StopRanks(KILL, 0.0)]),
        (("end_job", (LOST,)), []),
    ],
    "it cannot be started after INT": [
        (interrupt(INT, 1.0), [SetReason(BY_INT), USER_INT_NOW]),
        (("on_start_failure", (ERROR,)), [StopRanks(KILL, 0.0)]),
    ],
}
FAILS: Steps = [(("on_rank_end", (OWN,)), [QUICK])]
VICTIM_FIRST: Steps = [(("on_rank_end", (VICTIM,)), [QUICK])]
BY_USER: Steps = [(interrupt(INT, 1.0), [INT_NOTE, SetReason(BY_INT), USER_INT])]
READER_GOES: Steps = [(("record_unexplained_stop", (GONE, 1.0)), [SetReason(GONE)])]
AGENT_ENDED: Steps = [(("record_unexplained_stop", (AGENT, 1.0)), [SetReason(AGENT)])]
TIMES_OUT: Steps = [(("on_limit", (TIMEOUT,)), [SetReason(TIMEOUT), ShowStacks()])]
#: While ranks run: how it begins, and what follows.
HISTORIES: dict[str, tuple[Steps, Steps]] = {
    "a rank fails before initialize(), as others may be about to": (
        [
            (("on_rank_end", (OWN.copy_with(is_early=True),)), [QUICK.copy_with(settles=True)]),
            (("on_rank_end", (RankFailure(2, is_early=True),)), []),
        ],
        [],
    ),
    "a rank fails, and so does another": (FAILS, [(("on_rank_end", (RankFailure(2),)), [])]),
    "a rank fails, then INT hastens the end": (FAILS, [(interrupt(INT, 1.0), [USER_INT])]),
    "a rank fails, and a host is lost": (FAILS, [(("end_job", (LOST,)), [QUICK])]),
    "a rank fails, and a limit is reached": (FAILS, [(("on_limit", (TIMEOUT,)), [])]),
    "a rank fails, and ranks differ": (FAILS, [(("on_limit", (PARTED,)), [])]),
    "a rank fails, and the reader goes away": (
        FAILS,
        [(("record_unexplained_stop", (GONE, 1.0)), []), (("expire", (1.0 + SIGNAL_S,)), [QUICK])],
    ),
    "a rank fails, and the last output waits for its reader": (
        FAILS,
        [(("record_nothing_left", (2.0,)), None), (("gives_up", (1e6,)), False)],
    ),
    "INT, again, and once more": (
        BY_USER,
        [
            (("on_rank_end", (OWN,)), []),
            (interrupt(INT, 2.0), [USER_INT_NOW]),
            (("gives_up", (2.0,)), False),
            (interrupt(INT, 3.0), [USER_INT_NOW]),
            (("gives_up", (3.0,)), True),
        ],
    ),
    "INT, and again where nothing is left: the reader is not waited for": (
        BY_USER,
        [(interrupt(INT, 2.0, nothing_left=True), [USER_INT_NOW]), (("gives_up", (2.0,)), True)],
    ),
    "INT, and a host is lost during the grace": (BY_USER, [(("end_job", (LOST,)), [QUICK])]),
    "INT, and the reader goes away": (BY_USER, [(("record_unexplained_stop", (GONE, 1.0)), [])]),
    "the last output of a job that was stopped waits for its reader, but not for ever": (
        [(("record_nothing_left", (0.5,)), None), (("gives_up", (60.0,)), False), *BY_USER],
        [
            (("record_nothing_left", (2.0,)), None),
            (("record_nothing_left", (3.0,)), None),
            (("gives_up", (2.0 + READER_S - 0.1,)), False),
            (("gives_up", (2.0 + READER_S,)), True),
        ],
    ),
    "TERM, a rank fails over it, and all that is left waits for it": (
        [(interrupt(TERM, 1.0), [TERM_NOTE, SetReason(BY_TERM), USER_TERM])],
        [
            (("on_rank_end", (None,)), []),
            (("shorten_grace", (False,)), [QUICK]),
            (("shorten_grace", (False,)), []),
            (("shorten_grace", (True,)), [StopRanks(TERM, ENDS_S)]),
            (("shorten_grace", (False,)), []),
        ],
    ),
    "TERM that JAX catches": (
        [(interrupt(TERM, 1.0, caught=True), [CAUGHT_NOTE, SetReason(BY_TERM), USER_TERM])],
        [],
    ),
    "the reader goes away, and long after that comes INT": (
        READER_GOES,
        [
            (("on_limit", (TIMEOUT,)), []),
            (("record_unexplained_stop", (FULL, 1.0)), []),
            (("expire", (1.0,)), []),
            (("expire", (1.0 + SIGNAL_S,)), [QUICK]),
            (("expire", (9.0,)), []),
            (interrupt(INT, 10.0), [USER_INT]),
        ],
    ),
    "the reader goes away, and then comes INT": (
        READER_GOES,
        [
            (interrupt(INT, 1.1), [INT_NOTE, SetReason(BY_INT), USER_INT]),
            (("expire", (1.0 + SIGNAL_S,)), []),
        ],
    ),
    "the disk is full": (
        [(("record_unexplained_stop", (FULL, 1.0)), [SetReason(FULL)])],
        [(("expire", (1.0 + SIGNAL_S,)), [FULL_NOTE, LONG])],
    ),
    "an agent is ended from outside, and its ranks end of what it sends them": (
        AGENT_ENDED,
        [
            (("on_rank_end", (None,)), []),  # the grace of a TERM is theirs
            (("on_rank_end", (SIGNALLED,)), []),
            (("on_rank_end", (VICTIM,)), []),
            (("expire", (1.0 + SIGNAL_S,)), [AGENT_NOTE, LONG]),
        ],
    ),
    "an agent is ended from outside, and a rank fails over it": (
        AGENT_ENDED,
        [*FAILS, (("expire", (1.0 + SIGNAL_S,)), [LONG])],
    ),
    "an agent is ended from outside, and lost": (AGENT_ENDED, [(("end_job", (LOST,)), [QUICK])]),
    "an agent and the launcher are ended from outside": (
        AGENT_ENDED,
        [
            (("on_rank_end", (None,)), []),
            (interrupt(TERM, 1.1), [TERM_NOTE, SetReason(BY_TERM), USER_TERM]),
        ],
    ),
    "a rank is ended by the signal that its agent gets a moment later": (
        [(("on_rank_end", (SIGNALLED,)), [QUICK])],
        AGENT_ENDED,
    ),
    "a rank fails, and its agent is ended a moment later": (
        FAILS,
        [(("record_unexplained_stop", (AGENT, 1.0)), []), (interrupt(INT, 1.1), [USER_INT])],
    ),
    "ranks end of what a scheduler sends to their agent, before it can say so": (
        [(("on_rank_end", (None,)), [QUICK])],
        AGENT_ENDED,
    ),
    "a host is lost, and its victims were seen before": (
        VICTIM_FIRST,
        [(("end_job", (LOST,)), [SetReason(LOST), QUICK]), (interrupt(INT, 1.0), [USER_INT])],
    ),
    "a victim, the one that took it down, and a lost host": (
        VICTIM_FIRST,
        [(("on_rank_end", (OWN,)), []), (("end_job", (LOST,)), [QUICK])],
    ),
    "a victim is seen first, and then comes INT": (
        VICTIM_FIRST,
        [(interrupt(INT, 1.0), [USER_INT])],
    ),
    "a timeout": (TIMES_OUT, [(("on_stacks_shown",), [QUICK])]),
    "a timeout whose stacks do not come before INT": (
        TIMES_OUT,
        [(interrupt(INT, 1.0), [INT_NOTE, USER_INT]), (("on_stacks_shown",), [])],
    ),
    "stacks that the user asked for end nothing": ([(("on_stacks_shown",), [])], []),
    "a limit that needs no stacks": (
        [(("on_limit", (PARTED,)), [SetReason(PARTED), QUICK])],
        [],
    ),
}


def replay(policy: StopPolicy, steps: Steps) -> None:
    for (method, *arguments), expected in steps:
        args = arguments[0] if arguments else ()
        keywords = arguments[1] if len(arguments) > 1 else {}
        assert getattr(policy, method)(*args, **keywords) == expected, method


@pytest.mark.parametrize("name", EARLY)
def test_stop_policy_acts_before_the_start(name: str) -> None:
    replay(StopPolicy(GRACES.__getitem__), EARLY[name])


@pytest.mark.parametrize("name", HISTORIES)
def test_stop_policy_acts_during_the_run(name: str) -> None:
    policy = StopPolicy(GRACES.__getitem__)
    policy.on_ranks_start()
    begins, follows = HISTORIES[name]
    replay(policy, begins + follows)


def test_a_launcher_without_a_terminal_names_no_keys() -> None:
    policy = StopPolicy(GRACES.__getitem__, shows_stacks="")
    policy.on_ranks_start()
    note = Note(INT_NOTE.text.partition("; Ctrl-")[0])
    replay(policy, [(interrupt(INT, 1.0), [note, SetReason(BY_INT), USER_INT])])


def test_an_error_is_kept_unless_there_was_a_reason_before() -> None:
    policy = StopPolicy(GRACES.__getitem__)
    policy.on_start_failure(ERROR)
    policy.on_start_failure(LaunchError("another"))
    assert policy.error is ERROR
    policy = StopPolicy(GRACES.__getitem__)
    policy.on_interrupt(INT, 1.0, nothing_left=False)
    policy.on_start_failure(ERROR)
    assert policy.error is None


def test_deadline_is_that_of_the_pending_stop() -> None:
    policy = StopPolicy(GRACES.__getitem__)
    policy.on_ranks_start()
    assert policy.deadline is None
    policy.record_unexplained_stop(GONE, 1.0)
    assert policy.deadline == 1.0 + SIGNAL_S
    policy.expire(2.0)
    assert policy.deadline is None
    policy.record_nothing_left(3.0)
    assert policy.deadline == 3.0 + READER_S


def test_final_stops_are_not_restarted() -> None:
    def final(*events: tuple[str, Any]) -> bool:
        policy = StopPolicy(GRACES.__getitem__)
        for method, argument in events:
            getattr(policy, method)(argument)
        return policy.final

    fails, lost = ("on_rank_end", OWN), ("end_job", LOST)
    assert not final(fails) and not final(fails, lost) and not final(lost)
    assert final(fails, ("end_job", GONE)) and final(lost, ("end_job", BY_INT))
    assert final(("end_job", BY_INT), lost)
    assert final(("on_limit", TIMEOUT))

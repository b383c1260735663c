"""A launcher that was stopped (Ctrl-Z, SIGSTOP, a machine that slept) ends nothing for that."""

import time

import pytest
from records import run_of, say

from mcjax_launch.explain.announcer import Announcer
from mcjax_launch.explain.hang_watch import HangWatch, HostQuery
from mcjax_launch.job.job import Job
from mcjax_launch.journal.facts import Resumed
from mcjax_launch.journal.state import RunState
from mcjax_launch.launcher.time_limits import TimeLimits
from mcjax_launch.machine.loop import Loop
from mcjax_launch.wire import hook_messages as hook


def limits(state: RunState, **given: float) -> TimeLimits:
    job = Job(program=("a",), python="py", chdir="/", **given)  # type: ignore[arg-type]
    return TimeLimits(job, state, 0.0)


def test_suspension_extends_stall_and_join_limits() -> None:
    state = run_of(2)
    watched = limits(state, stall_timeout=8.0, start_timeout=6.0)
    state.activity.usage_at = 4.5
    state.on_resumed(Resumed(), 1000.0)
    assert watched.expire(1000.0) is None
    assert watched.expire(1005.9) is None
    stop = watched.expire(1006.0)
    assert stop is not None and stop.message.startswith("--start-timeout")
    state.activity.usage_at = 1004.5
    assert watched.expire(1007.9) is None
    stop = watched.expire(1008.0)
    assert stop is not None and stop.message.startswith("--stall-timeout")


def test_suspension_does_not_extend_the_job_limit() -> None:
    state = run_of(2)
    watched = limits(state, timeout=100.0)
    state.on_resumed(Resumed(), 1000.0)
    stop = watched.expire(1000.0)
    assert stop is not None and stop.message.startswith("--timeout")


def test_suspension_does_not_count_as_waiting() -> None:
    state = run_of(2)
    say(state, 0, hook.Joining("h:1", 2, 0, "train.py:3"), 1.0)
    watch = HangWatch(state, Announcer(state), 0.0)
    state.on_resumed(Resumed(), 1000.0)
    asked: list[tuple[float, HostQuery]] = []
    while not asked or asked[-1][1] is not HostQuery.STACKS:
        assert watch.deadline is not None
        now = max(watch.deadline, 1000.0)
        if (ask := watch.expire(now)) is not None:
            asked.append((now, ask))
    assert 1030 <= asked[-1][0] <= 1040


class Due:
    """A timer."""

    def __init__(self, deadline: float, told: list[str]) -> None:
        self.deadline: float | None = deadline
        self.told = told

    def expire(self, now: float) -> None:
        self.told.append("due")


def test_resumption_is_announced_before_any_timer() -> None:
    told: list[str] = []
    loop, now = Loop(), time.monotonic()
    loop.run_once([Due(now - 1000, told)], lambda at: told.append("resumed"))
    assert told == ["resumed", "due"]
    loop.run_once(
        [Due(now + 1000, told), Due(time.monotonic(), [])], lambda at: told.append("resumed")
    )
    assert told == ["resumed", "due", "due"]
    loop.close()


@pytest.mark.parametrize(("heard_at", "is_quoted"), [(0.0, True), (6.0, False)])
def test_limit_begins_with_the_finding_on_the_hang(heard_at: float, is_quoted: bool) -> None:
    """Unless a rank has been heard since: the limit may then have another reason."""
    state = run_of(2)
    watched = limits(state, stall_timeout=8.0)
    state.activity.usage_at = 7.5
    state.activity.suspicion, state.activity.heard_at = ("rank 1 waits", 5.0), heard_at
    stop = watched.expire(20.0)
    assert stop is not None
    limit = "--stall-timeout: no rank has printed, computed or compiled for 8 s"
    assert stop.message == ("rank 1 waits" if is_quoted else limit)
    assert (limit in stop.details) == is_quoted

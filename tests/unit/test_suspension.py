"""A launcher that was stopped (Ctrl-Z, SIGSTOP, a machine that slept) ends nothing for that."""

import time

from records import run_of

from mcjax_launch.job.job import Job
from mcjax_launch.journal.facts import Resumed
from mcjax_launch.journal.state import RunState
from mcjax_launch.launcher.time_limits import TimeLimits
from mcjax_launch.machine.loop import Loop


def limits(state: RunState, **given: float) -> TimeLimits:
    job = Job(program=("a",), python="py", chdir="/", **given)  # type: ignore[arg-type]
    return TimeLimits(job, state, 0.0)


def test_suspension_extends_stall_and_join_limits() -> None:
    state = run_of(2)
    watched = limits(state, stall_timeout=8.0, start_timeout=6.0)
    state.on_resumed(Resumed(), 1000.0)
    assert watched.expire(1000.0) is None
    assert watched.expire(1005.9) is None
    stop = watched.expire(1006.0)
    assert stop is not None and stop.message.startswith("--start-timeout")
    assert watched.expire(1007.9) is None
    stop = watched.expire(1008.0)
    assert stop is not None and stop.message.startswith("--stall-timeout")


def test_suspension_does_not_extend_the_job_limit() -> None:
    state = run_of(2)
    watched = limits(state, timeout=100.0)
    state.on_resumed(Resumed(), 1000.0)
    stop = watched.expire(1000.0)
    assert stop is not None and stop.message.startswith("--timeout")


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

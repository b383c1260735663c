"""Who has the terminal; what does not count meanwhile."""

from records import run_of

from mcjax_launch.cli.command import command
from mcjax_launch.cli.words import divide_words
from mcjax_launch.diagnosis.announcer import Announcer
from mcjax_launch.features.debugging.messages import JOB_ENDS
from mcjax_launch.features.debugging.queue import (
    STEP_S,
    DebugQueue,
    Effects,
    Grant,
    HasToWait,
    Reclaim,
    Refuse,
    StillSteps,
    StoppedDebugger,
)
from mcjax_launch.job.job import Job
from mcjax_launch.launcher.hang_watch import HangWatch
from mcjax_launch.launcher.time_limits import TimeLimits
from mcjax_launch.runs.state import RunState

FIRST, SECOND, THIRD = (StoppedDebugger(rank, 10 + rank, "a.py:1") for rank in range(3))


def resume(
    queue: DebugQueue, stopped: StoppedDebugger, now: float, *, steps: bool = False
) -> Effects:
    return queue.on_debugger_resume(stopped.rank, stopped.pid, now, steps=steps)


def test_stopped_ranks_get_the_terminal_one_by_one() -> None:
    queue = DebugQueue()
    assert queue.on_debugger_stop(FIRST) == [Grant(FIRST)]
    assert queue.on_debugger_stop(SECOND) == [HasToWait(SECOND)]
    assert queue.on_debugger_stop(THIRD) == [HasToWait(THIRD)]
    assert resume(queue, FIRST, 1.0) == [Grant(SECOND)]
    assert resume(queue, SECOND, 2.0) == [Grant(THIRD)]
    assert resume(queue, THIRD, 3.0) == [Reclaim()]
    assert queue.active is None


def test_step_keeps_the_terminal_briefly() -> None:
    queue = DebugQueue()
    queue.on_debugger_stop(FIRST)
    queue.on_debugger_stop(SECOND)
    assert resume(queue, FIRST, 5.0, steps=True) == []
    assert queue.deadline == 5.0 + STEP_S
    assert queue.expire(5.0) == []
    further = StoppedDebugger(0, 10, "a.py:2")
    assert queue.on_debugger_stop(further) == [Grant(further, again=True)]
    assert queue.deadline is None
    resume(queue, further, 6.0, steps=True)
    assert queue.expire(6.0 + STEP_S) == [StillSteps(further), Grant(SECOND)]
    assert queue.on_debugger_stop(further) == [HasToWait(further)]


def test_rank_that_ends_in_a_step_frees_the_terminal_after_a_delay() -> None:
    queue = DebugQueue()
    queue.on_debugger_stop(FIRST)
    queue.on_debugger_stop(SECOND)
    resume(queue, FIRST, 5.0, steps=True)
    assert resume(queue, FIRST, 5.1) == []
    assert queue.expire(5.0 + STEP_S) == [Grant(SECOND)]
    resume(queue, SECOND, 7.0, steps=True)
    assert resume(queue, SECOND, 7.1) == [Reclaim()]


def test_long_step_of_the_only_stopped_rank_frees_the_terminal() -> None:
    queue = DebugQueue()
    queue.on_debugger_stop(FIRST)
    resume(queue, FIRST, 5.0, steps=True)
    assert queue.expire(5.0 + STEP_S) == [Reclaim()]
    assert queue.on_debugger_stop(FIRST) == [Grant(FIRST)]


def test_switching_is_granted_only_to_stopped_ranks() -> None:
    queue = DebugQueue()
    queue.on_debugger_stop(FIRST)
    assert queue.switch_to(1) == [Refuse(FIRST, "rank 1 has not stopped, nor has any other rank")]
    queue.on_debugger_stop(SECOND)
    queue.on_debugger_stop(THIRD)
    assert queue.switch_to(2) == [Grant(THIRD)]
    [refused] = queue.switch_to(2)
    assert refused == Refuse(THIRD, "this is rank 2; stopped ranks: 1 at a.py:1, 0 at a.py:1")
    assert queue.switch_to(0) == [Grant(FIRST)]


def test_ended_ranks_leave_the_queue() -> None:
    queue = DebugQueue()
    queue.on_debugger_stop(FIRST)
    queue.on_debugger_stop(SECOND)
    queue.on_debugger_stop(THIRD)
    assert resume(queue, SECOND, 1.0) == []  # its process has ended
    assert queue.on_rank_end(0) == [Grant(THIRD)]  # its host is lost
    assert queue.on_rank_end(2) == [Reclaim()]
    assert queue.on_rank_end(2) == []


def test_stopped_ranks_are_refused_at_the_end_of_the_job() -> None:
    assert DebugQueue().end() == []
    queue = DebugQueue()
    queue.on_debugger_stop(FIRST)
    queue.on_debugger_stop(SECOND)
    assert queue.end() == [Refuse(SECOND, JOB_ENDS), Reclaim()]
    assert queue.on_debugger_stop(THIRD) == [Refuse(THIRD, JOB_ENDS)]


def running(**limits: float) -> tuple[RunState, TimeLimits]:
    state = run_of(2, num_processes=0)
    job = Job(program=("a",), python="py", chdir="/", **limits)  # type: ignore[arg-type]
    return state, TimeLimits(job, state, 0.0)


def test_no_limit_counts_while_a_rank_is_debugged() -> None:
    state, limits = running(timeout=10.0, start_timeout=8.0, stall_timeout=5.0)
    state.activity.usage_at = 3.0
    state.pause.begin(4.0)
    assert limits.deadline is None
    assert limits.expire(100.0) is None
    state.pause.end(104.0)
    state.activity.active_at = state.activity.usage_at = 104.0
    assert limits.deadline == 108.0  # --start-timeout: 4 s are left
    assert limits.expire(107.9) is None
    stop = limits.expire(108.0)
    assert stop is not None and stop.message.startswith("--start-timeout")


def test_no_hang_is_reported_while_a_rank_is_debugged() -> None:
    state, _ = running()
    state.num_processes, state.initialize_calls = 2, 1
    watch = HangWatch(state, Announcer(state), 0.0)
    state.activity.heard_at = 1.0
    assert watch.deadline is not None
    state.pause.begin(4.0)
    assert watch.deadline is None
    assert watch.expire(1000.0) is None


def test_omitted_value_of_pdb_is_filled_in() -> None:
    filled = {
        "--pdb a.py": "--pdb=all a.py",
        "--pdb 0,2 a.py": "--pdb 0,2 a.py",
        "--pdb=1 a.py": "--pdb=1 a.py",
        "--pdb all a.py": "--pdb all a.py",
        "-n 4 --pdb -d 2 a.py --pdb x": "-n 4 --pdb=all -d 2 a.py --pdb x",
        "-n4 --pdb": "-n4 --pdb=all",
        "--hosts - --pdb -- a.py": "--hosts - --pdb=all -- a.py",
        "-x --pdb a.py": "-x --pdb a.py",
        "-m --pdb a": "-m --pdb=all a",
    }
    divided = {words: divide_words(words.split(), command.params) for words in filled}
    found = {words: [*own, *rest] for words, (own, rest) in divided.items()}
    assert {words: " ".join(given) for words, given in found.items()} == filled

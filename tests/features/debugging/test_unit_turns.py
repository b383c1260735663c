"""Who has the terminal; what does not count meanwhile."""

from records import run_of

from mcjax_launch.cli.command import command
from mcjax_launch.cli.words import divide_words
from mcjax_launch.features.debugging.launcher import STEP_S, StoppedDebugger, Turns
from mcjax_launch.job.job import Job
from mcjax_launch.journal.state import RunState
from mcjax_launch.launcher.time_limits import TimeLimits

FIRST, SECOND, THIRD = (StoppedDebugger(rank, 10 + rank, "a.py:1") for rank in range(3))


def test_stopped_ranks_get_the_terminal_one_by_one() -> None:
    turns = Turns()
    assert [turns.add(each) for each in (FIRST, SECOND, THIRD)] == [True, False, False]
    assert turns.waiting_ranks == (1, 2)
    assert turns.resume(0, 10, 1.0, steps=False) and turns.begin_next() == SECOND
    assert turns.resume(1, 11, 2.0, steps=False) and turns.begin_next() == THIRD
    assert turns.resume(2, 12, 3.0, steps=False) and turns.begin_next() is None
    assert turns.active is None


def test_step_keeps_the_terminal_briefly() -> None:
    turns = Turns()
    turns.add(FIRST)
    turns.add(SECOND)
    assert not turns.resume(0, 10, 5.0, steps=True)
    assert turns.deadline == 5.0 + STEP_S
    further = StoppedDebugger(0, 10, "a.py:2")
    assert turns.add(further) and turns.deadline is None
    turns.resume(0, 10, 6.0, steps=True)
    assert turns.begin_next() == SECOND  # at the deadline
    assert not turns.add(further) and turns.deadline is None


def test_rank_that_ends_in_a_step_frees_the_terminal_after_a_moment() -> None:
    """It may have ended the job, as after a post-mortem."""
    turns = Turns()
    turns.add(FIRST)
    turns.add(SECOND)
    turns.resume(0, 10, 5.0, steps=True)
    assert not turns.resume(0, 10, 5.1, steps=False) and turns.deadline == 5.0 + STEP_S
    assert turns.begin_next() == SECOND
    turns.resume(1, 11, 7.0, steps=True)
    assert turns.resume(1, 11, 7.1, steps=False)


def test_ended_ranks_have_no_turn() -> None:
    turns = Turns()
    for stopped in (FIRST, SECOND, THIRD):
        turns.add(stopped)
    assert not turns.resume(1, 11, 1.0, steps=False)  # its process has ended
    assert turns.remove(0) and turns.begin_next() == THIRD  # its host is lost
    assert turns.remove(2) and turns.begin_next() is None
    assert not turns.remove(2)


def test_ranks_that_wait_are_refused_at_the_end_of_the_job() -> None:
    turns = Turns()
    turns.add(FIRST)
    turns.add(SECOND)
    assert turns.end() == [SECOND] and turns.has_ended
    assert turns.begin_next() is None


def running(**limits: float) -> tuple[RunState, TimeLimits]:
    state = run_of(2, num_processes=0)
    job = Job(program=("a",), python="py", chdir="/", **limits)  # type: ignore[arg-type]
    return state, TimeLimits(job, state, 0.0)


def test_no_limit_counts_while_a_rank_is_debugged() -> None:
    state, limits = running(timeout=10.0, start_timeout=8.0, stall_timeout=5.0)
    state.pause.begin(4.0)
    assert limits.deadline is None
    assert limits.expire(100.0) is None
    state.pause.end(104.0)
    state.activity.active_at = 104.0
    assert limits.deadline == 108.0  # --start-timeout: 4 s are left
    assert limits.expire(107.9) is None
    stop = limits.expire(108.0)
    assert stop is not None and stop.message.startswith("--start-timeout")


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

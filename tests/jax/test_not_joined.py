"""A call of initialize() that raises an exception, which the program catches."""

import pytest
from jobs import PROGRAMS, Jobs

TOO_LATE = "because lone.py:13 had already started a backend: call initialize() before that line"


@pytest.mark.every_jax
@pytest.mark.parametrize(("way", "why"), [
    ("all", TOO_LATE),
    ("wrong", "with IndexError: list index out of range"),
])  # fmt: skip
def test_ranks_that_all_fail_to_join_continue_separately(jobs: Jobs, way: str, why: str) -> None:
    """None waits for another one, as by hand; and the user is told what these are now."""
    ended = jobs.run("-n", 3, "-d", 1, "lone.py", way, cwd=PROGRAMS)
    assert ended.status == 0, ended.stderr
    assert ended.stdout.count("process 0 of 1") == 3
    assert "waiting for process 0" not in ended.stderr
    assert ended.report == (
        "these are 3 separate single-process jobs: initialize() at lone.py:20 failed in all 3 "
        f"ranks {why}"
    )


def test_ranks_that_wait_for_a_separately_ended_rank_get_a_hint(jobs: Jobs) -> None:
    ended = jobs.run("-n", 2, "-d", 1, "lone.py", "first", cwd=PROGRAMS)
    assert ended.status == 1
    first, why, *_ = ended.report.splitlines()
    assert first == (
        "rank 0 exited with 0 after its call of initialize() had failed, but rank 1 waits for it"
    )
    assert why == f"hint: initialize() at lone.py:20 failed {TOO_LATE}"


@pytest.mark.every_jax
def test_second_call_of_initialize_changes_nothing(jobs: Jobs) -> None:
    """JAX refuses it, and the job is what it was."""
    ended = jobs.run("-n", 3, "-d", 1, "lone.py", "twice", cwd=PROGRAMS)
    assert ended.status == 0, ended.stderr
    assert ended.stdout.count("caught: ") == 3
    assert ended.stdout.count(" of 3") == 3
    assert ended.report == ""

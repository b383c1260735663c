"""A call of initialize() that raises an exception, which the program catches."""

import pytest
from jobs import PROGRAMS, Jobs

TOO_LATE = "because lone.py:12 had already started a backend: call initialize() before that line"


@pytest.mark.every_jax
def test_ranks_that_all_fail_to_join_continue_separately(jobs: Jobs) -> None:
    """None waits for another one, as by hand; and the user is told what these are now."""
    ended = jobs.run("-n", 2, "-d", 1, "lone.py", "all", cwd=PROGRAMS)
    assert ended.status == 0, ended.stderr
    assert ended.stdout.count("process 0 of 1") == 2
    assert "waiting for process 0" not in ended.stderr
    assert ended.report == (
        "these are 2 separate single-process jobs: initialize() at lone.py:19 failed in both "
        f"ranks {TOO_LATE}"
    )


def test_second_call_of_initialize_changes_nothing(jobs: Jobs) -> None:
    """JAX refuses it, and the job is what it was."""
    ended = jobs.run("-n", 2, "-d", 1, "lone.py", "twice", cwd=PROGRAMS)
    assert ended.status == 0, ended.stderr
    assert ended.stdout.count("caught: ") == 2
    assert ended.stdout.count(" of 2") == 2
    assert ended.report == ""

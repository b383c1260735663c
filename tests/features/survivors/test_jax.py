"""Processes of JAX that outlive others (--on-rank-failure)."""

import re
from pathlib import Path

from jobs import PROGRAMS, Jobs

PROGRAM = PROGRAMS / "surviving.py"


def run(jobs: Jobs, folder: Path, option: str, failing: int) -> tuple[int, str]:
    ended = jobs.run(
        *("-n", 3, "-d", 1, "--on-rank-failure", option),
        *(PROGRAM, failing, folder),
        limit=180,
    )
    return ended.status, ended.stdout + ended.stderr


def test_survivors_continue(jobs: Jobs, tmp_path: Path) -> None:
    status, said = run(jobs, tmp_path, "continue", 1)
    assert (status, "living: [0, 2]" in said) == (137, True), said
    assert sorted(re.findall(r"rank (\d) ends", said)) == ["0", "2"]
    assert "continuing without rank 1" in said


def test_failure_of_process_0_ends_the_job(jobs: Jobs, tmp_path: Path) -> None:
    status, said = run(jobs, tmp_path, "continue", 0)
    assert status == 137, said
    assert "rank 0 failed: killed by SIGKILL" in said
    assert "process 0 holds JAX's coordination service, without which no other process can" in said

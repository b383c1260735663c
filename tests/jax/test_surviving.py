"""Processes of JAX that outlive others (--on-rank-failure)."""

import re
from pathlib import Path

from jobs import PROGRAMS, Jobs

PROGRAM = PROGRAMS / "surviving.py"


def run(jobs: Jobs, folder: Path, option: str, failing: int, until: str) -> tuple[int, str]:
    ended = jobs.run(
        *("-n", 3, "-d", 1, "--on-rank-failure", option),
        *(PROGRAM, failing, until, folder),
        limit=180,
    )
    return ended.status, ended.stdout + ended.stderr


def test_survivors_continue(jobs: Jobs, tmp_path: Path) -> None:
    status, said = run(jobs, tmp_path, "continue", 1, "alone")
    assert (status, "living: [0, 2]" in said) == (137, True), said
    assert sorted(re.findall(r"rank (\d) life 0 ends", said)) == ["0", "2"]
    assert "continuing without rank 1" in said


def test_restarted_rank_joins_again(jobs: Jobs, tmp_path: Path) -> None:
    status, said = run(jobs, tmp_path, "restart", 1, "all")
    assert (status, "living: [0, 1, 2]" in said) == (0, True), said
    assert "rank 1 life 1 joined" in said
    assert "restarting rank 1 in 1 s (1 of 3)" in said


def test_failure_of_process_0_ends_the_job(jobs: Jobs, tmp_path: Path) -> None:
    status, said = run(jobs, tmp_path, "restart", 0, "all")
    assert (status, said.count("life 1")) == (137, 0), said
    assert "rank 0 failed: killed by SIGKILL" in said
    assert "process 0 holds JAX's coordination service, without which no other process can" in said

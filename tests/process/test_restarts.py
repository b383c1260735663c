"""Restarts that use their head, and the exit status of a job that was told to end."""

import json
import signal
import subprocess
from pathlib import Path

import pytest
from jobs import Jobs

from mcjax_launch.wire.timers import SCALE

QUICK = {SCALE: "0.1"}


def test_same_bug_twice_ends_restarts(jobs: Jobs, tmp_path: Path) -> None:
    (tmp_path / "bug.py").write_text("import os\nraise ValueError(os.environ['MCJAX_RESTART'])")
    ended = jobs.run("-n", 2, "--max-restarts", 5, "bug.py", cwd=tmp_path, env=QUICK)
    assert ended.status == 1
    assert ended.report.count("restarting in") == 1
    assert f"not restarted: ValueError at {tmp_path}/bug.py:2 in <module> twice" in ended.report
    assert "earlier attempts:\n  attempt 1: " in ended.report


def test_restarts_by_a_scheduler_count_in_ranks_and_record(jobs: Jobs, tmp_path: Path) -> None:
    script = "echo restart $MCJAX_RESTART; [ $MCJAX_RESTART = 3 ]"
    words = ("-n", 1, "--max-restarts", 1, "--report", tmp_path / "run.json", "sh", "-c", script)
    ended = jobs.run(*words, env={**QUICK, "MCJAX_ENGINE_RESTART": "2"})
    assert (ended.status, ended.stdout) == (0, "[0] restart 2\n[0] restart 3\n")
    attempts = json.loads((tmp_path / "run.json").read_text())["attempts"]
    assert [attempt["restart"] for attempt in attempts] == [2, 3]


LEAVES = "trap 'exit {}' TERM INT HUP; echo ready; while :; do sleep 0.05; done"


@pytest.mark.parametrize(
    ("script", "signum", "status"),
    [
        (LEAVES.format(0), signal.SIGTERM, 75),
        (LEAVES.format(0), signal.SIGINT, 75),
        (LEAVES.format(3), signal.SIGTERM, 143),
        ("echo ready; exec sleep 1000", signal.SIGTERM, 143),
    ],
    ids=["TERM", "INT", "a rank with 3", "by the signal"],
)
def test_preempted_job_ends_with_its_status(
    jobs: Jobs, script: str, signum: int, status: int
) -> None:
    job = jobs.start("-n", 2, "--preempted-status", 75, "bash", "-c", script)
    job.read_until("ready", 2)
    job.signal(signum)
    assert job.finish().status == status


def test_rank_killed_after_the_grace_was_not_preempted(jobs: Jobs) -> None:
    deaf = "trap '' TERM; echo ready; while :; do sleep 1000; done"
    job = jobs.start(
        *("-n", 2, "--grace", "0.3", "--preempted-status", 75, "bash", "-c", deaf),
        stderr=subprocess.STDOUT,
    )
    job.read_until("ready", 2)
    job.signal(15)
    assert job.finish().status == 143

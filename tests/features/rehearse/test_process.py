"""Faults that are made on purpose (--rehearse): what follows is as in earnest."""

import json
from pathlib import Path

import pytest
from jobs import Jobs
from remote import FAKE_SSH

WAIT = "echo ready; exec sleep 1000"
LEAVE = "trap 'exit 0' TERM; while :; do sleep 0.05; done"

HOSTS = ("--hosts", "localhost,b", "--via", FAKE_SSH)

# Name: options, what the ranks run, exit status, what came of the fault, and what caused the end.
RUNS = {
    "kill": (["kill:1@0.2s"], WAIT, 137, "kill:1 at 0.2 s: the job ended after", "rank 1 failed: killed by SIGKILL (--rehearse)"),
    "term": (["term@0.2s"], LEAVE, 143, "term at 0.2 s: both ranks left with 0", "stopped by SIGTERM (--rehearse)"),
    "stop": (["stop:1@0.2s", "--timeout", "1s"], WAIT, 124, "stop:1 at 0.2 s: the job ended after", "--timeout: still running after 1 s"),
    "a host": (["lose:localhost@0.2s"], WAIT, 255, "lose:localhost at 0.2 s: the job ended after", "host localhost: its agent was killed by SIGKILL (--rehearse)"),
}  # fmt: skip


def test_other_kill_is_not_blamed_on_the_rehearsal(jobs: Jobs) -> None:
    """Rank 0 has been killed before, and rank 1 by itself."""
    script = "[ {process_id} = 1 ] && { sleep 1; kill -9 $$; }; exec sleep 1000"
    options = ("--on-rank-failure", "continue", "--rehearse", "kill:0@0.1s")
    ended = jobs.run("-n", 3, *options, "--timeout", "2s", "bash", "-c", script)
    assert "killed by SIGKILL (--rehearse)" in ended.report
    assert "killed by SIGKILL (an external kill -9" in ended.report


@pytest.mark.parametrize("name", RUNS)
def test_each_rehearsed_fault_happens_and_is_reported(
    jobs: Jobs, name: str, tmp_path: Path
) -> None:
    """No outsider is blamed for it."""
    options, script, status, said, blamed = RUNS[name]
    report = tmp_path / "run.json"
    ended = jobs.run("-n", 2, "--rehearse", *options, "--report", report, "bash", "-c", script)
    assert ended.status == status, ended.stderr
    lines = ended.report.splitlines()
    assert blamed in lines and "OOM" not in ended.report
    assert any(line.startswith(f"rehearsed {said}") for line in lines)
    killers = [rank["killer"] for rank in json.loads(report.read_text())["attempts"][0]["ranks"]]
    assert killers == [None, "--rehearse" if name == "kill" else None]


def test_each_fault_is_rehearsed_once(jobs: Jobs) -> None:
    faults = ("--rehearse", "kill:0@0.2s", "--rehearse", "kill:1@0.6s")
    ended = jobs.run("-n", 2, "--max-restarts", 1, *faults, "bash", "-c", WAIT)
    report = ended.report
    first, second = report.index("rehearsed kill:0 at"), report.index("rehearsed kill:1 at")
    assert first < report.index("restarting in 1 s") < second
    assert "not rehearsed" not in report


def test_killed_rank_restarts_in_a_rehearsal(jobs: Jobs) -> None:
    options = ("--on-rank-failure", "restart", "--rehearse", "kill:1@0.2s")
    ended = jobs.run("-n", 2, *options, "sleep", 3)
    assert ended.status == 0
    assert "rehearsed kill:1 at 0.2 s: rank 1 was back after" in ended.report


def test_job_survives_a_rehearsed_host_loss(jobs: Jobs) -> None:
    options = ("--on-rank-failure", "continue", "--rehearse", "lose:b@0.2s")
    ended = jobs.run(*HOSTS, *options, "sleep", 1)
    assert ended.status == 255, ended.stderr
    assert "continuing without rank 1 (--on-rank-failure)" in ended.report
    assert "1 lost with host b" in ended.report


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("kill:5@1s", "--rehearse kill:5: there is no such rank here"),
        ("lose:b@1s", "--rehearse lose:b: there is no such host here; there are localhost"),
    ],
)
def test_rehearsal_of_an_absent_target_is_refused(jobs: Jobs, fault: str, said: str) -> None:
    ended = jobs.run("-n", 2, "--rehearse", fault, "echo", "started")
    assert (ended.status, ended.report, ended.stdout) == (2, said, "")


def test_rehearsal_after_the_end_is_reported_as_not_done(jobs: Jobs) -> None:
    ended = jobs.run("-n", 2, "--rehearse", "term@60s", "true")
    assert (ended.status, ended.report) == (0, "not rehearsed: term at 60 s: the job had ended")

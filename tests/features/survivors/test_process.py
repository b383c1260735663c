"""Ranks that outlive others (--on-rank-failure), in programs without JAX; tests/jax has those."""

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest
from jobs import Jobs
from remote import FAKE_SSH

START = """
import os, signal, subprocess, sys, time
rank = int(os.environ["JAX_PROCESS_ID"])
def wait_for(path):
    while not os.path.exists(path):
        time.sleep(0.01)
"""


class Program:
    """A program and a file that its ranks wait for."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "rank.py"
        self.go = folder / "go"

    def __call__(self, text: str) -> Path:
        self.path.write_text(START + f"GO = {str(self.go)!r}\n" + text)
        return self.path


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


def test_survivors_continue_and_the_failure_is_reported_at_once(
    jobs: Jobs, program: Program
) -> None:
    path = program("if rank == 1: raise ValueError('bad batch')\nwait_for(GO)\nprint('done', rank)")
    job = jobs.start("-n", 3, "--on-rank-failure=continue", path, stderr=subprocess.STDOUT)
    told = job.read_until("continuing without rank 1")
    assert "rank 1 failed: ValueError: bad batch" in told
    program.go.touch()
    ended = job.finish()
    assert ended.status == 1
    last = ended.stdout.split("continuing without rank 1")[1]
    assert "rank 1 failed: ValueError: bad batch" in last
    assert "the 2 other ranks: exited with 0" in last
    assert "Traceback" not in last
    assert sorted(re.findall(r"done (\d)", ended.stdout)) == ["0", "2"]


def test_survivors_continue_without_a_lost_host(jobs: Jobs, tmp_path: Path) -> None:
    """A rank that had ended before is not lost with its host."""
    script = """
        case $JAX_PROCESS_ID in
        1) until [ -e pid ] && ! kill -0 $(cat pid) 2> err; do sleep 0.05; done; echo agent $PPID;;
        2) echo $$ > new; mv new pid; exit;;
        esac
        until [ -e go ]; do sleep 0.05; done
    """
    job = jobs.start(
        *("--hosts", "a,b:2", "--show", 1, "--via", FAKE_SSH, "--on-rank-failure", "continue"),
        *("bash", "-c", script),
        cwd=tmp_path,
        stderr=subprocess.STDOUT,
    )
    job.read_until("agent ")
    [agent] = job.pids("agent")
    os.kill(agent, signal.SIGKILL)
    assert "continuing without rank 1 (" in job.read_until("(--on-rank-failure)")
    (tmp_path / "go").touch()
    ended = job.finish()
    assert ended.status == 255
    assert "2 exited with 0, 1 lost with host b" in ended.stdout

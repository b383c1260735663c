"""Ranks that outlive others (--on-rank-failure), in programs without JAX; tests/jax has those."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from jobs import Jobs
from remote import FAKE_SSH

from mcjax_launch.wire.timers import SCALE

START = """
import os, signal, subprocess, sys, time
rank, life = int(os.environ["JAX_PROCESS_ID"]), int(os.environ.get("MCJAX_RANK_RESTART", 0))
print("rank", rank, "life", life, flush=True)
def wait_for(path):
    while not os.path.exists(path):
        time.sleep(0.01)
"""


QUICK = {SCALE: "0.1"}  # the pauses before a rank's restart


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
    script = "echo agent $PPID; until [ -e go ]; do sleep 0.05; done"
    job = jobs.start(
        *("--hosts", "a,b", "--show", 1, "--via", FAKE_SSH, "--on-rank-failure", "continue"),
        *("bash", "-c", script),
        cwd=tmp_path,
        stderr=subprocess.STDOUT,
    )
    job.read_until("agent ")
    [agent] = job.pids("agent")
    os.kill(agent, signal.SIGKILL)
    job.read_until("continuing without rank 1 (--on-rank-failure)")
    (tmp_path / "go").touch()
    ended = job.finish()
    assert ended.status == 255
    assert "1 lost with host b" in ended.stdout


def test_a_rank_is_started_again_in_its_place(jobs: Jobs, program: Program, tmp_path: Path) -> None:
    path = program(
        "print('at', os.environ['JAX_COORDINATOR_ADDRESS'], os.environ['MCJAX_RESTART'],"
        " os.environ['MCJAX_LOCAL_PROCESS_ID'], os.getcwd())\n"
        "sys.stderr.write('unfinished'); sys.stderr.flush()\n"
        "if rank == 1 and life < 2: sys.exit(3)\n"
        "if rank != 1: wait_for(GO)\n"
        "open(GO, 'w')"
    )
    ended = jobs.run(
        "-n", 2, "--on-rank-failure=restart", "--log-dir", tmp_path / "logs", path, env=QUICK
    )
    assert ended.status == 0
    out = (tmp_path / "logs" / "1.out").read_text().splitlines()
    assert out[::2] == [f"rank 1 life {life}" for life in range(3)]
    assert len(set(out[1::2])) == 1
    assert (tmp_path / "logs" / "1.err").read_text() == "unfinished" * 3
    assert "restarting rank 1 in 0.1 s (1 of 3)\n" in ended.stderr
    assert "restarting rank 1 in 0.2 s (2 of 3)\n" in ended.stderr
    assert "the job ended" not in ended.stderr


def test_rank_restarts_are_limited(jobs: Jobs, program: Program) -> None:
    path = program("if rank == 1: sys.exit(3)\nwait_for(GO)")
    ended = jobs.run("-n", 2, "--on-rank-failure=restart:2", path, env=QUICK)
    assert ended.status == 3
    assert re.findall(r"rank 1 life (\d)", ended.stdout) == ["0", "1", "2"]
    assert "the job ended despite it: it has already been restarted 2 times" in ended.stderr
    assert "the other rank: ended by SIGTERM" in ended.stderr


def test_restart_leaves_no_process_of_the_failed_rank(jobs: Jobs, program: Program) -> None:
    path = program(
        """
PIDS = GO + ".pids"
if rank == 1 and life == 0:
    deaf = "trap '' TERM HUP; echo $$ >> " + PIDS + "; while :; do sleep 1000; done"
    subprocess.Popen(["sh", "-c", deaf])
    subprocess.Popen(["sh", "-c", deaf], start_new_session=True)
    subprocess.run(["sh", "-c", "setsid sh -c \\"$0\\" & exit", deaf])
    while not os.path.exists(PIDS) or len(open(PIDS).read().split()) < 3:
        time.sleep(0.01)
    os.kill(os.getpid(), 9)
if rank == 1:
    for pid in open(PIDS).read().split():
        assert subprocess.run(["ps", "-o", "stat=", "-p", pid], capture_output=True).returncode, pid
    print("all gone")
    open(GO, "w")
other = subprocess.Popen(["sleep", "1000"], start_new_session=True)
wait_for(GO)
assert other.poll() is None, "of another rank"
other.kill()
"""
    )
    ended = jobs.run("-n", 3, "--on-rank-failure=restart:1", path, env=QUICK)
    assert (ended.status, "all gone" in ended.stdout) == (0, True), ended.stderr


def test_rank_restart_that_cannot_start_ends_the_job(
    jobs: Jobs, program: Program, tmp_path: Path
) -> None:
    python = tmp_path / "python"
    python.symlink_to(sys.executable)
    path = program("if rank == 1:\n    os.unlink(sys.argv[1])\n    sys.exit(3)\nwait_for(GO)")
    ended = jobs.run(
        *("-n", 2, "--on-rank-failure=restart", "--python", python, path, python), env=QUICK
    )
    assert ended.status == 127
    assert f"{python}: No such file or directory" in ended.report


def test_signal_ends_a_pending_rank_restart(jobs: Jobs, program: Program) -> None:
    path = program("if rank == 1: sys.exit(3)\ntime.sleep(1000)")
    job = jobs.start(
        "-n", 2, "--on-rank-failure=restart", path, stderr=subprocess.STDOUT, env={SCALE: "1000"}
    )
    job.read_until("restarting rank 1")
    job.signal(signal.SIGINT)
    ended = job.finish()
    assert ended.status == 130
    assert ended.stdout.count("rank 1 life") == 1

"""Ranks that outlive others (--on-rank-failure), in programs without JAX; tests/jax has those."""

import random
import re
import signal
import subprocess
from pathlib import Path

import pytest
from jobs import Jobs

from mcjax_launch.kernel.wire.timers import SCALE

START = """
import os, signal, subprocess, sys, time
rank, life = int(os.environ["JAX_PROCESS_ID"]), int(os.environ.get("MCJAX_RANK_RESTART", 0))
print("rank", rank, "life", life, flush=True)
def wait_for(path):
    while not os.path.exists(path):
        time.sleep(0.01)
"""


QUICK = {SCALE: "0.1"}  # the pauses before a rank's next life


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


FAILURES = {
    "an exit": ("sys.exit(7)", 7, "exit status 7"),
    "an exception": ("raise ValueError('bad batch')", 1, "ValueError: bad batch"),
    "a signal": ("os.kill(os.getpid(), 9)", 137, "killed by SIGKILL"),
}


@pytest.mark.parametrize("how", FAILURES)
def test_the_others_go_on_and_the_failure_is_told_at_once(
    jobs: Jobs, program: Program, how: str
) -> None:
    code, status, words = FAILURES[how]
    path = program(f"if rank == 1:\n    {code}\nwait_for(GO)\nprint('done', rank)")
    job = jobs.start("-n", 3, "--on-rank-failure=continue", path, stderr=subprocess.STDOUT)
    told = job.read_until("going on without rank 1")
    assert f"rank 1 failed: {words}" in told
    program.go.touch()
    ended = job.finish()
    assert ended.status == status
    last = ended.stdout.split("going on without rank 1")[1]
    assert f"rank 1 failed: {words}" in last
    assert "the 2 other ranks: exited with 0" in last
    assert "Traceback" not in last
    assert sorted(re.findall(r"done (\d)", ended.stdout)) == ["0", "2"]


def test_the_first_failures_status_counts(jobs: Jobs, program: Program) -> None:
    path = program("if rank == 2: sys.exit(5)\nwait_for(GO)\nsys.exit(6 if rank == 0 else 0)")
    job = jobs.start("-n", 3, "--on-rank-failure=continue", path, stderr=subprocess.STDOUT)
    job.read_until("going on without rank 2")
    program.go.touch()
    assert job.finish().status == 5


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
    assert "starting rank 1 again in 0.1 s (1 of 3)\n" in ended.stderr
    assert "starting rank 1 again in 0.2 s (2 of 3)\n" in ended.stderr
    lives = r"rank 1, 3 lives: exited with status 3 after .*, then .*, then exited with 0 after"
    assert re.search(lives, ended.stderr)
    assert "the job ended" not in ended.stderr


def test_not_for_ever(jobs: Jobs, program: Program) -> None:
    path = program("if rank == 1: sys.exit(3)\nwait_for(GO)")
    ended = jobs.run("-n", 2, "--on-rank-failure=restart:2", path, env=QUICK)
    assert ended.status == 3
    assert re.findall(r"rank 1 life (\d)", ended.stdout) == ["0", "1", "2"]
    assert "the job ended all the same: it has been started again 2 times already" in ended.stderr
    assert "the other rank: ended by SIGTERM" in ended.stderr
    assert ended.stderr.count("rank 1, 3 lives: ") == 1


def test_a_host_whose_ranks_all_wait_for_their_next_life(jobs: Jobs, program: Program) -> None:
    path = program("sys.exit(3 if life == 0 else 0)")
    ended = jobs.run("-n", 2, "--on-rank-failure=restart:1", path, env=QUICK)
    assert ended.status == 0
    assert sorted(re.findall(r"rank (\d life 1)", ended.stdout)) == ["0 life 1", "1 life 1"]


def test_nothing_of_a_life_is_left_when_the_next_begins(jobs: Jobs, program: Program) -> None:
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


@pytest.mark.parametrize(
    ("signum", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["INT", "TERM"]
)
def test_a_signal_while_a_rank_is_to_be_started_again(
    jobs: Jobs, program: Program, signum: int, status: int
) -> None:
    path = program("if rank == 1: sys.exit(3)\ntime.sleep(1000)")
    job = jobs.start(
        "-n", 2, "--on-rank-failure=restart", path, stderr=subprocess.STDOUT, env={SCALE: "1000"}
    )
    job.read_until("starting rank 1 again")
    job.signal(signum)
    ended = job.finish()
    assert ended.status == status
    assert ended.stdout.count("rank 1 life") == 1


@pytest.mark.long
@pytest.mark.parametrize("seed", range(8))
def test_faults_at_random_moments(jobs: Jobs, program: Program, seed: int) -> None:
    chance = random.Random(seed)
    path = program(
        "subprocess.Popen(['sleep', '1000'], start_new_session=True)\n"
        f"time.sleep(random.Random({seed} + 10 * rank + life).random() * 0.3)\n"
        "if rank and life < 2: os.kill(os.getpid(), 9)\n"
    )
    path.write_text("import random\n" + path.read_text())
    job = jobs.start(
        "-n", 3, "--on-rank-failure=restart:2", path, stderr=subprocess.STDOUT, env=QUICK
    )
    job.read_until("life", chance.randrange(1, 8))
    if chance.random() < 0.5:
        job.signal(signal.SIGTERM)
        assert job.finish().status in (143, 0)
    else:
        assert job.finish().status == 0

"""Processes that ranks start, and which of them are ranks: a stand-in for jax."""

import os
import sys
from pathlib import Path

import pytest
from jobs import Ended, Jobs
from stand_in_jax import BARE

CHILD = "subprocess.call([sys.executable, '-c', '''import os, sys, jax\n{}'''])\n"
OWN_JOB = "jax.distributed.initialize('127.0.0.1:0', 1, 0)"
LEFT_OUT = (
    "rank 0 started a process that called initialize() again at <string>:2; it is not a rank, so the "
    "call was skipped: call it in the rank's own process alone"
)


def run(jobs: Jobs, stand_in: Path, program: str) -> Ended:
    """Run a rank; the stand-in prints `at` for each call that reaches it."""
    words = ["-n", 1, sys.executable, "-c", f"import os, subprocess, sys, jax\n{program}"]
    return jobs.run(*words, env={"PYTHONPATH": str(stand_in)})


@pytest.mark.parametrize("end", ["raise ValueError('of the child')", "os.kill(os.getpid(), 9)"])
def test_calls_of_child_processes_are_not_the_ranks(jobs: Jobs, stand_in: Path, end: str) -> None:
    ended = run(jobs, stand_in, f"{BARE}\n{CHILD.format(f'{BARE}; {end}')}")
    assert ended.status == 0, ended.stderr
    assert ended.stdout.count("at unix:") == 1
    assert ended.report == LEFT_OUT


def test_a_fork_is_below_its_rank(jobs: Jobs, stand_in: Path) -> None:
    fork = f"{BARE}\nif not os.fork():\n  {BARE}\n  os._exit(3)\nos.wait()"
    ended = run(jobs, stand_in, fork)
    assert ended.status == 0, ended.stderr
    assert ended.stdout.count("at unix:") == 1
    assert ended.report == LEFT_OUT.replace("<string>:2", "<string>:4")


@pytest.mark.parametrize(("program", "calls"), [
    (CHILD.format(BARE), 1),  # what starts the program is not in the job itself
    (f"{BARE}\njax.distributed.shutdown()\n{CHILD.format(BARE)}", 2),  # the next one's turn
    (f"{BARE}\n{CHILD.format(OWN_JOB)}", 2),
    (f"if sys.argv[1:]: {BARE}\nelse: os.execv(sys.executable, [*sys.orig_argv, 'again'])", 1),
    (f"{BARE}\nif not sys.argv[1:]: os.execv(sys.executable, [*sys.orig_argv, 'again'])", 2),
    (f"try: jax.distributed.initialize('nowhere')\nexcept IndexError: {CHILD.format(BARE)}", 1),
])  # fmt: skip
def test_allowed_children_may_call_initialize(
    jobs: Jobs, stand_in: Path, program: str, calls: int
) -> None:
    ended = run(jobs, stand_in, program)
    assert ended.status == 0, ended.stderr
    assert ended.stdout.count("at ") == calls
    assert ended.report == ""


ABOVE = {
    "shell script": ["sh", "-c", f"true; {sys.executable} program.py; exit $?"],
    "runpy": [sys.executable, "-c", "import runpy; runpy.run_path('program.py')"],
    "pytest": [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", "program.py"],
    "uv run": ["uv", "run", "--no-project", "--offline", "--python", sys.executable, "program.py"],
}


@pytest.mark.parametrize("name", ABOVE)
def test_bare_initialize_works_below_another_program(jobs: Jobs, stand_in: Path, name: str) -> None:
    (stand_in / "program.py").write_text(f"import jax\n{BARE}\ndef test_nothing(): pass\n")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {"PATH": path, "PYTHONPATH": str(stand_in)}
    ended = jobs.run("-n", 2, *ABOVE[name], cwd=stand_in, env=env)
    assert ended.status == 0, ended.stdout + ended.stderr
    assert ended.stdout.count("at unix:") == 2

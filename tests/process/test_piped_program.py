"""A PROGRAM that is a pipe, as a shell's <(command) or a FIFO: only its one rank may read it."""

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from detached import DetachedJobs
from jobs import LAUNCHER, Ended, Jobs

# Mentions what the launcher would look for in a file.
PYTHON = b"import sys  # jax, initialize(int(sys.argv[1]))\nprint('ran', __name__)\n"
RAN = "[0] ran __main__\n"


@contextmanager
def filled_fifo(path: Path, content: bytes) -> Iterator[Path]:
    """A FIFO into which another process writes once, to the first that opens it."""
    os.mkfifo(path)
    with subprocess.Popen(["sh", "-c", 'exec cat > "$0"', path], stdin=subprocess.PIPE) as writer:
        assert writer.stdin is not None
        writer.stdin.write(content)
        writer.stdin.close()
        yield path
        writer.kill()


@pytest.mark.parametrize("words", [[], [sys.executable], [sys.executable, "-u"]])
def test_program_in_a_fifo_runs_in_its_only_rank(
    jobs: Jobs, tmp_path: Path, words: list[str]
) -> None:
    with filled_fifo(tmp_path / "train.py", PYTHON) as program:
        ended = jobs.run("-n", 1, *words, program)
    assert (ended.status, ended.stdout, ended.report) == (0, RAN, "")


def run_in_bash(jobs: Jobs, options: str, source: str) -> Ended:
    """Run the launcher with options and a Python that reads its program from the shell's pipe."""
    launcher, python = shlex.join(LAUNCHER), shlex.quote(sys.executable)
    command = f"{launcher} {options} {python} <(printf %s {shlex.quote(source)})"
    return jobs.run("-c", command, launcher=["bash"])


def test_shells_pipe_serves_one_rank(jobs: Jobs, tmp_path: Path) -> None:
    ended = run_in_bash(jobs, "-n 1", PYTHON.decode())
    assert (ended.status, ended.stdout) == (0, RAN)
    for options, why in {
        "-n 2": "with -n 1",
        "-n 1 --max-restarts 1": "without --max-restarts",
        f"-n 1 --watch={tmp_path}": "without --watch",
    }.items():
        ended = run_in_bash(jobs, options, PYTHON.decode())
        assert (ended.status, ended.stdout) == (2, "")
        assert ended.report.startswith("/dev/fd/")
        assert ended.report.endswith(
            f": is a pipe, which serves one rank, once: save the program to a file, or run it {why}"
        )


def test_refused_pipe_keeps_its_content(jobs: Jobs, tmp_path: Path) -> None:
    with filled_fifo(tmp_path / "train.py", PYTHON) as program:
        assert jobs.run("-n", 2, "--bind-cores", "sometimes", program).status == 2
        assert jobs.run("-n", 2, program).status == 2
        assert jobs.run("-n", 1, program).stdout == RAN


def test_detached_job_reads_the_shells_pipe(jobs: Jobs) -> None:
    ended = run_in_bash(jobs, "--detach -n 1", PYTHON.decode())
    detached = DetachedJobs(jobs)
    assert detached.attach(ended.stdout.strip()).stdout == RAN


def test_pipe_without_an_interpreter_is_named(jobs: Jobs, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "run")
    ended = jobs.run("./run", cwd=tmp_path)
    assert ended.status == 126
    assert ended.report == (
        "./run: is not a regular file; run it with its interpreter: python ./run"
    )


@pytest.mark.parametrize("detach", ["", "--detach"])
def test_shells_pipe_serves_as_file_of_variables(
    jobs: Jobs, detached: DetachedJobs, detach: str
) -> None:
    program = "import os; print(os.environ['A'], os.environ['B'])"
    ended = run_in_bash(jobs, f"{detach} --env-file <(echo A=1) --env-file <(echo B=2)", program)
    if detach:
        ended = detached.attach(ended.stdout.strip())
    assert (ended.status, ended.stdout) == (0, "[0] 1 2\n"), ended.stderr

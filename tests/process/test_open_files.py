"""`ulimit -n`: raised for the launcher, kept for the ranks, and known to be too low before a start."""

import resource
import sys
from pathlib import Path

import pytest
from jobs import LAUNCHER, Jobs

# Another way to this machine: an agent that is streamed, in a shell of its own.
SHELL = "env H={host} sh -c {command}"
SHOW = ["bash", "-c", "ulimit -n"]


def limited(soft: int, hard: int | None = None) -> list[str]:
    """The launcher under a limit."""
    code = "import os, resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, ({}, {})); "
    run = "os.execvp(sys.argv[1], sys.argv[1:])"
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1] if hard is None else hard
    return [sys.executable, "-c", code.format(soft, hard) + run, *LAUNCHER]


def test_log_files_may_exceed_the_soft_limit(jobs: Jobs, tmp_path: Path) -> None:
    ended = jobs.run("-n", 64, "--log-dir", tmp_path / "d", *SHOW, launcher=limited(100))
    assert (ended.status, ended.report) == (0, f"logs: {tmp_path / 'd'}")
    files = sorted((tmp_path / "d").glob("*.out"))
    assert [file.read_text() for file in files] == ["100\n"] * 64


def test_each_attempt_on_each_host_has_the_users_limit(jobs: Jobs) -> None:
    hosts = ["--via", SHELL, "--hosts", "localhost,a", "--max-restarts", "1"]
    program = ["bash", "-c", "ulimit -n; exit $((1 - MCJAX_RESTART))"]
    ended = jobs.run(*hosts, *program, launcher=limited(100))
    assert ended.status == 0
    said = {line.split("] ")[1] for line in ended.stdout.splitlines()}
    assert said == {"100"}


@pytest.mark.parametrize(
    ("args", "status", "words"),
    [
        (["-n", "40"], 2, "needs 104 open files, and the limit is 64: raise `ulimit -n`"),
        (["--log-dir", "{}", "-n", "20"], 2, "--log-dir: needs 67 open files, and the limit is 64"),
        (["--via", SHELL, "--hosts", "a[1-20]"], 2, "20 hosts: needs 84 open files, and the "),
        (["--via", SHELL, "--hosts", "a:40"], 255, "host a: needs 104 open files, and the limit"),
    ],
)
def test_too_low_limit_of_open_files_is_explained(
    jobs: Jobs, tmp_path: Path, args: list[str], status: int, words: str
) -> None:
    args = [arg.replace("{}", str(tmp_path)) if arg == "{}" else arg for arg in args]
    ended = jobs.run(*args, *SHOW, launcher=limited(64, 64))
    assert (ended.status, ended.out) == (status, b"")
    assert ended.stderr.count("\n") == 1
    assert ended.report.startswith(words)

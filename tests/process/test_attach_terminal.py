"""Terminals that return to a detached job, and leave: the status row, keys."""

import os
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from detached import PROGRAM, DetachedJobs
from jobs import LAUNCHER, eventually
from terminal import Terminal

START = Callable[..., Terminal]
STATUS = re.compile(r"mcjax-launch: \d+ s")


def test_attached_terminal_shows_the_status_and_stacks(
    detached: DetachedJobs, tmp_path: Path, at_terminal: START
) -> None:
    job_id = detached.program(tmp_path, ranks=3)
    terminal = at_terminal("--attach", job_id, "--status=table")
    terminal.until("idle")
    terminal.until("[2] running")
    terminal.type("\x1c")  # Ctrl-\
    terminal.until("stacks of 3 ranks")
    (tmp_path / "end").write_text("0")
    terminal.until("] ends")
    assert terminal.finish() == 0


def test_closing_the_terminals_does_not_end_the_job(
    detached: DetachedJobs, tmp_path: Path, at_terminal: START
) -> None:
    (tmp_path / "program.py").write_text(
        "import time\nprint('ready', flush=True)\ntime.sleep(600)\n"
    )
    started = at_terminal("--detach", tmp_path / "program.py")
    assert started.finish() == 0
    job_id = started.shown.strip()
    terminal = at_terminal("--attach", job_id)
    terminal.until("[0] ready")
    terminal.hang_up()
    eventually(lambda: not _is_alive(terminal.pid))
    assert detached.one(job_id)["state"] == "running"
    again = at_terminal("--attach")
    again.until("[0] ready")
    again.type("\x03")
    again.until(f"job {job_id} continues: mcjax-launch --attach {job_id} returns to it")
    assert again.finish() == 130
    assert detached.jobs.run("--stop", job_id).status == 0


@pytest.mark.parametrize("returns", [False, True])
def test_stopped_job_leaves_the_screen_to_the_shell(
    detached: DetachedJobs, tmp_path: Path, at_terminal: START, *, returns: bool
) -> None:
    """With Ctrl-Z, until `fg`: of a job that is attached, and of a terminal that returns."""
    (tmp_path / "program.py").write_text(PROGRAM)
    program = ["-n", "2", "-C", tmp_path, tmp_path / "program.py"]
    words = ["--attach", detached.start(*program)] if returns else program
    shell = at_terminal("--norc", "--noediting", "-i", command=["bash"], env={"PS1": "$ "})
    shell.type(f"{shlex.join(map(str, [*LAUNCHER, '--status', *words]))}\n")
    shell.until(STATUS)
    shell.type("\x1a")
    shell.until("Stopped")
    shell.until("$ ")
    assert not [row for row in shell.read_screen() if STATUS.match(row)]
    shell.type("fg\n")
    shell.until(STATUS)
    (tmp_path / "end").write_text("0")
    shell.until("] ends")
    shell.type("exit\n")
    assert shell.finish() == 0
    assert not [row for row in shell.read_screen() if STATUS.match(row)]


def _is_alive(pid: int) -> bool:
    return os.waitpid(pid, os.WNOHANG) == (0, 0)

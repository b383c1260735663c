"""Terminals that return to a detached job, and leave: the status row, keys."""

import os
from collections.abc import Callable
from pathlib import Path

from detached import DetachedJobs
from jobs import eventually
from terminal import Terminal

START = Callable[..., Terminal]


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


def _is_alive(pid: int) -> bool:
    return os.waitpid(pid, os.WNOHANG) == (0, 0)

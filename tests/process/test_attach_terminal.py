"""Terminals that return to a detached job, and leave: debuggers, the status row, keys."""

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from detached import DetachedJobs
from jobs import eventually
from terminal import PROMPT, Terminal

START = Callable[..., Terminal]

STOPPED = """
import os
rank = os.environ["JAX_PROCESS_ID"]
secret = f"value of rank {rank}"
breakpoint()
print("after", secret, flush=True)
"""


@pytest.fixture
def stopped(detached: DetachedJobs, tmp_path: Path) -> str:
    """The id of a job of one rank that waits in a debugger."""
    (tmp_path / "stopped.py").write_text(STOPPED)
    job_id = detached.start("stopped.py", cwd=tmp_path)
    eventually(lambda: detached.one(job_id)["waits"] == "rank 0 stopped at stopped.py:5")
    return job_id


def test_breakpoint_waits_for_each_attached_terminal(
    detached: DetachedJobs, stopped: str, at_terminal: START
) -> None:
    assert "waits for --attach: rank 0 s" in detached.jobs.run("--jobs").stdout
    first = at_terminal("--attach", stopped)
    first.step_past_breakpoint()
    first.answer(PROMPT, "p secret")
    first.until("'value of rank 0'")
    assert detached.one(stopped)["waits"] == ""
    first.until(PROMPT)
    os.kill(first.pid, signal.SIGKILL)
    first.finish()
    eventually(lambda: detached.one(stopped)["waits"].startswith("rank 0 stopped at stopped.py:"))
    eventually(lambda: first.is_as_it_was)
    second = at_terminal("--attach", stopped)
    second.until(re.compile(r"rank 0 stopped at stopped\.py:\d\r\n"))
    second.answer(PROMPT, "c")
    second.until("after value of rank 0")
    assert second.finish() == 0
    assert second.is_as_it_was


def test_killed_launcher_frees_the_terminal(
    detached: DetachedJobs, stopped: str, at_terminal: START
) -> None:
    terminal = at_terminal("--attach", stopped)
    terminal.until(PROMPT)
    os.kill(detached.one(stopped)["launcher_pid"], signal.SIGKILL)
    terminal.until(f"job {stopped} is lost: its launcher was killed")
    assert terminal.finish() == 255
    eventually(lambda: terminal.is_as_it_was)


def test_attached_screen_equals_that_of_a_foreground_job(
    detached: DetachedJobs, tmp_path: Path, at_terminal: START
) -> None:
    job_id = detached.program(tmp_path, ranks=3)
    terminal = at_terminal("--attach", job_id, "--collapse", "always", "--status=table")
    terminal.until("idle")
    terminal.until("[2] running")
    terminal.type("\x1c")  # Ctrl-\
    terminal.until("stacks of 3 ranks")
    (tmp_path / "end").write_text("0")
    terminal.until("[0-2] ends")
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

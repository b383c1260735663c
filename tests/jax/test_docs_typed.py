"""Commands of the pages at which a reader goes on: types, saves a file, or comes back later."""

import json
import re
import signal
from pathlib import Path

import documented
import pytest
from detached import DetachedJobs
from documented import SHARES, TRAIN, TYPED
from jobs import Jobs, Running, eventually
from pages import Session
from terminal import PROMPT, Terminal

WATCHED, DEBUGGED, LEFT = (
    [session for session in documented.at(TYPED) if any(word in str(session) for word in words)]
    for words in (
        ["--watch"],
        ["--pdb"],
        ["--detach", "--attach", "--jobs", "--stop", "--wait"],
    )
)


def test_each_command_has_a_test_here() -> None:
    assert {*WATCHED, *DEBUGGED, *LEFT} == {*documented.at(TYPED)}


def type_(jobs: Jobs, folder: Path, env: dict[str, str], command: str) -> Running:
    """Type a command; the launcher takes the place of the shell."""
    return jobs.start("-c", f"exec {command} 2>&1", launcher=["bash"], cwd=folder, env=env)


@pytest.mark.only_linux("--watch")
@pytest.mark.parametrize("session", WATCHED, ids=str)
def test_save_runs_the_job_again(jobs: Jobs, tmp_path: Path, session: Session) -> None:
    text = TRAIN if " -d " in session.steps[0].command else SHARES  # one of them without JAX
    env = documented.prepare(session, tmp_path, {"train.py": text})
    running = type_(jobs, tmp_path, env, session.steps[0].command)
    running.read_until("waiting for the next save; Ctrl-C to end")
    (tmp_path / "train.py").write_text(f"{text}print('saved')\n")
    running.read_until("mcjax-launch: train.py has changed: starting again")
    running.read_until("saved", 4)
    running.read_until("waiting for the next save", 2)
    running.signal(signal.SIGINT)
    ended = running.finish()
    assert ended.status == 130
    ours = [line for line in session.steps[0].shown.splitlines() if "mcjax-launch: " in line]
    for line in ours:  # what is said of Enter is for a terminal
        assert line.replace("Enter to run again, ", "") in ended.stdout


LOAD = """
import jax

jax.distributed.initialize()
{blank}
def load(rank):
    if rank == 2:
        raise ValueError("bad batch")


load(jax.process_index())
"""


@pytest.mark.parametrize("session", DEBUGGED, ids=str)
def test_debugger_opens_at_the_exception(jobs: Jobs, tmp_path: Path, session: Session) -> None:
    [step] = session.steps
    above = LOAD.partition("raise")[0].count("\n")
    program = LOAD.replace("{blank}", "\n" * (17 - above))  # which is in line 18 on the page
    env = documented.prepare(session, tmp_path, {"train.py": program})
    command = ["env", "-C", str(tmp_path), "bash", "-c", step.command]
    terminal = Terminal(jobs, env=env, command=command)
    try:
        seen = terminal.until(PROMPT)
        for line in step.shown.splitlines():
            plain = line.replace("/home/me", str(tmp_path)).removesuffix("(Pdb 2) w")
            assert plain.rstrip() in seen
        terminal.type("w\r")
        assert "-> load(jax.process_index())" in terminal.until(PROMPT)
        terminal.type("q\r")
        terminal.finish()
    finally:
        terminal.close()


STEPS = """
import jax
jax.distributed.initialize()
if jax.process_index() == 0:
    print("step 100")
while True:
    __import__("time").sleep(0.05)
"""


def test_job_is_left_and_found_again(jobs: Jobs, detached: DetachedJobs, tmp_path: Path) -> None:
    """Each job gets all of leave.md's commands, with its own id in place of the page's."""
    steps = {str(session): session.steps[0] for session in LEFT}
    commands = {words.split()[2]: step for words, step in steps.items() if "leave.md" in words}
    [row] = (line for line in commands["--jobs"].shown.splitlines() if "7c3e90ad" in line)
    env = documented.prepare(LEFT[0], tmp_path, {"train.py": STEPS})
    for begin in (step for words, step in steps.items() if "--detach" in words):
        number = type_(jobs, tmp_path, env, begin.command).finish().stdout.strip()
        assert re.fullmatch("[0-9a-f]{8}", number)
        eventually(lambda number=number: detached.one(number)["last_line"])  # type: ignore[misc]
        listed = type_(jobs, tmp_path, env, commands["--jobs"].command).finish().stdout
        [line] = (line for line in listed.splitlines() if number in line)
        assert columns(line) == columns(row.replace("7c3e90ad", number))

        attach = commands["--attach"].command.replace("7c3e", number[:4])
        running = type_(jobs, tmp_path, env, attach)
        running.read_until("step 100")
        running.signal(signal.SIGINT)
        assert running.finish().status == 130

        stop = commands["--stop"].command.replace("7c3e", number[:4])
        assert type_(jobs, tmp_path, env, stop).finish().status == 0
        wait = commands["--wait"].command.replace("7c3e", number[:4])
        ended = type_(jobs, tmp_path, env, wait).finish()
        assert ended.status == 130 and json.loads(ended.stdout)["id"] == number
        assert detached.one(number)["state"] == "ended"


def columns(row: str) -> list[str]:
    """Return those of a listed job, but for the time of day and for what it waits for."""
    row = re.sub(r" \(waits .*?\)|\d+:\d+:\d+", "", row)
    return re.split("  +", row)

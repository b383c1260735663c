"""The status line in a terminal, and where there is none."""

import os
import re
import select
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from jobs import Jobs, shell_script
from remote import FAKE_SSH
from terminal import Terminal

START = Callable[..., Terminal]


def client(folder: Path, first: str) -> str:
    """A client that does this before it reaches a host, whose name is $1."""
    reaches = f'exec {FAKE_SSH.removesuffix(" {host}")} "$@"'
    ssh = shell_script(folder / "client", f"{first}\n{reaches}")
    return f"{ssh} {{host}}"


def test_status_shows_hosts_connecting(at_terminal: START, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    via = client(tmp_path, f"[ $1 != b ] || cat {gate}")
    terminal = at_terminal("--collapse", "auto", "--hosts", "a,b,c", "--via", via, "echo", "hi")
    terminal.until("2/3 hosts ready, waiting for b")
    gate.write_text("")
    assert terminal.finish() == 0
    assert terminal.read_screen() == ["[0-2] hi"]


def test_status_line_disappears_while_ranks_print(at_terminal: START, tmp_path: Path) -> None:
    gate, other = tmp_path / "gate", tmp_path / "other"
    os.mkfifo(gate)
    os.mkfifo(other)
    script = f"cat {gate}; cat {other}"
    terminal = at_terminal("--status", "bash", "-c", script)
    terminal.until("mcjax-launch: 2 s")
    assert re.fullmatch(r"mcjax-launch: \d s.*", terminal.read_screen()[0])
    gate.write_text("hello\n")
    terminal.until("hello\r\n")
    terminal.until("last line")
    first, second = terminal.read_screen()
    assert first == "[0] hello"
    assert second.startswith("mcjax-launch: ")
    other.write_text("bye\n")
    assert terminal.finish() == 0
    assert terminal.read_screen() == ["[0] hello", "[0] bye"]


def wakeups(pid: int) -> int:
    return int(psutil.Process(pid).num_ctx_switches().voluntary)


def test_an_idle_job_costs_nothing_on_a_terminal(at_terminal: START) -> None:
    """Once it has been seen that it takes longer than a moment, and but for --status."""
    terminal = at_terminal("bash", "-c", "echo ready; sleep 1000")
    terminal.until("ready")
    assert not select.select([terminal.fd], [], [], 2.5)[0]
    before = wakeups(terminal.pid)
    assert not select.select([terminal.fd], [], [], 1.2)[0]  # nothing comes
    assert wakeups(terminal.pid) == before
    terminal.type("\x03")
    assert terminal.finish() == 130


@pytest.mark.parametrize("words", [["-q"], []])
def test_pipe_or_quiet_has_no_status_line(
    jobs: Jobs, at_terminal: START, tmp_path: Path, words: list[str]
) -> None:
    options = ["--hosts", "a,b", "--via", client(tmp_path, "sleep 1.4")]
    if words:
        terminal = at_terminal(*words, *options, "true")
        assert terminal.finish() == 0
        assert terminal.shown == ""
    else:
        ended = jobs.run("--status", *options, "true")
        assert (ended.status, ended.out, ended.err) == (0, b"", b"")


def test_status_line_stays_below_stacks_and_follows_a_resize(at_terminal: START) -> None:
    """Lines of the launcher's own come above it, and it follows the size."""
    terminal = at_terminal("--status", sys.executable, "-c", "import time; time.sleep(1000)")
    terminal.until("mcjax-launch: 2 s")
    terminal.type("\x1c")
    terminal.until("in <module>")
    terminal.resize(30, 20)
    terminal.until(re.compile(r"\[2Kmcjax-launch: .{5}\x1b"))  # 19 of 20 columns
    terminal.type("\x03")
    assert terminal.finish() == 130
    rows = terminal.read_screen()
    assert not [row for row in rows if re.match(r"mcjax-launch: \d+ s", row)]
    assert any("in <module>" in row for row in rows)


def test_rows_of_ranks_fit_a_narrow_terminal(at_terminal: START) -> None:
    program = (sys.executable, "-c", "import time; time.sleep(1000)")
    terminal = at_terminal("--status=table", "-n", 2, *program)
    terminal.until("[1] importing")
    terminal.resize(30, 10)
    terminal.until("[1] impor\x1b")
    terminal.type("\x03")
    assert terminal.finish() == 130

"""--stdin: the launcher's standard input for rank 0."""

import functools
import hashlib
import os
import signal
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path

import pytest
from jobs import LAUNCHER, Jobs, eventually
from remote import FAKE_SSH
from terminal import Terminal

pytestmark = pytest.mark.quick

DIGEST = "import hashlib, sys; print(hashlib.file_digest(sys.stdin.buffer, 'md5').hexdigest())"
MUCH = os.urandom(1 << 20) * 8
PYTHON = (sys.executable, "-c")


def run_with(jobs: Jobs, data: bytes, *args: object) -> tuple[int, list[str], str]:
    """Run the launcher with this on its standard input: its status, stdout's lines, and stderr."""
    running = jobs.start(*args, stdin=subprocess.PIPE)
    out, err = running.process.communicate(data, timeout=150)
    return running.process.returncode, sorted(out.decode().splitlines()), err.decode()


def test_rank_0_gets_the_whole_input(jobs: Jobs) -> None:
    status, lines, err = run_with(jobs, MUCH, "-n", 4, "--stdin", "--no-prefix", *PYTHON, DIGEST)
    whole, nothing = hashlib.md5(MUCH).hexdigest(), hashlib.md5(b"").hexdigest()
    assert (status, lines) == (0, sorted([whole, *[nothing] * 3])), err


def test_rank_0_on_another_host_is_refused(jobs: Jobs) -> None:
    hosts = ["--hosts", "a,localhost", "--via", FAKE_SSH]
    status, lines, err = run_with(jobs, b"x\n", *hosts, "--stdin", "cat")
    assert (status, lines) == (2, [])
    assert "--stdin: rank 0 is on a, and" in err
    hosts[1] = "localhost,a"
    assert run_with(jobs, b"x\n", *hosts, "--stdin", "cat")[:2] == (0, ["[0 localhost] x"])


def test_ranks_of_a_job_that_reads_input_are_not_forked(jobs: Jobs, tmp_path: Path) -> None:
    (tmp_path / "mine.py").touch()
    options = ["-v", "-n", 2, "--preload", "mine", "--stdin", "--no-prefix", "-C", tmp_path]
    status, lines, err = run_with(jobs, MUCH, *options, *PYTHON, f"import mine; {DIGEST}")
    assert (status, hashlib.md5(MUCH).hexdigest() in lines) == (0, True), err
    assert "--preload: rank 0 reads --stdin; the ranks are started afresh" in err


def test_no_rank_reads_stdin_by_default(jobs: Jobs) -> None:
    status, lines, _ = run_with(jobs, b"x\n", "-n", 2, "wc", "-c")
    assert (status, lines) == (0, ["[0] 0", "[1] 0"])


def test_file_is_read_from_its_current_position(jobs: Jobs, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"first\nsecond\n")
    with (tmp_path / "file").open("rb", buffering=0) as file:
        file.read(6)
        ended = jobs.start("--stdin", "-n", 2, "cat", stdin=file.fileno()).finish()
        assert ended.stdout.splitlines() == ["[0] second"]
        assert file.tell() == 13


def test_closed_input_is_empty(jobs: Jobs) -> None:
    closed = ["sh", "-c", 'exec "$@" <&-', "-", *LAUNCHER]
    ended = jobs.run("--stdin", "cat", launcher=closed)
    assert (ended.status, ended.stdout, ended.stderr) == (0, "", "")


def test_no_other_process_inherits_the_input(jobs: Jobs) -> None:
    """Rank 0 ends first; and neither other ranks nor the command of --setup keep its pipe open."""
    first = "[ $JAX_PROCESS_ID = 0 ] && exit; read line <&-; sleep 300"
    options = ["-n", 2, "--setup", "sleep 300 & echo", "--stdin", "sh", "-c", first]
    running = jobs.start(*options, stdin=subprocess.PIPE)
    assert running.process.stdin is not None
    eventually(functools.partial(_is_refused, running.process.stdin.fileno()))
    running.signal(signal.SIGINT)
    assert running.finish().status == 130


def _is_refused(pipe: int) -> bool:
    try:
        os.write(pipe, b"x\n")
    except BrokenPipeError:
        return True
    return False


def test_a_restart_reads_a_file_again(jobs: Jobs, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"once\nmore\n")
    program = 'read line; echo "$MCJAX_RESTART $line"; exit 3'
    with (tmp_path / "file").open("rb") as file:
        options = ["--stdin", "--max-restarts", 1, "sh", "-c", program]
        ended = jobs.start(*options, stdin=file.fileno()).finish()
    assert ended.stdout.splitlines() == ["[0] 0 once", "[0] 1 once"]
    running = jobs.start(*options, stdin=subprocess.PIPE)
    ended = running.finish()
    assert (ended.status, ended.stdout) == (2, "")
    assert "read standard input again only from a file" in ended.report


def test_the_launcher_of_rank_0_reads(jobs: Jobs) -> None:
    """The same options for all; a launcher without rank 0 leaves its input alone."""
    place = ["-n", 2, "--num-hosts", 2, "--coordinator", "127.0.0.1:1", "--stdin"]
    assert run_with(jobs, b"x\n", *place, "--host-rank", 0, "cat")[:2] == (0, ["[0] x"])
    assert run_with(jobs, b"x\n", *place, "--host-rank", 1, "cat")[:2] == (0, [])


def test_terminal_is_rank_0s(at_terminal: Callable[..., Terminal]) -> None:
    """Ctrl-Z suspends nobody; what rank 0 has set there is undone."""
    program = "test -t 0 && stty -echo && echo ready; cat; exit 3"
    terminal = at_terminal("--stdin", "sh", "-c", program)
    before = termios.tcgetattr(terminal.fd)
    terminal.until("[0] ready")
    terminal.type("\x1a\n")
    terminal.until("[0] ")
    terminal.type("for rank 0\n")
    terminal.until("[0] for rank 0\r\n")
    terminal.type("\x04")
    assert terminal.finish() == 3
    assert termios.tcgetattr(terminal.fd) == before


def test_background_of_a_terminal_is_refused(at_terminal: Callable[..., Terminal]) -> None:
    shell = ["bash", "-c", 'set -m; "$@" & wait $!', "-"]
    terminal = at_terminal("--stdin", "cat", within=shell)
    terminal.until("in the background of its terminal")
    assert terminal.finish() == 2

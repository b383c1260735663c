"""--stdin: the launcher's standard input for rank 0."""

import hashlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from jobs import LAUNCHER, PORTABLE, Jobs, Running, eventually
from remote import FAKE_SSH
from terminal import Terminal

pytestmark = pytest.mark.quick

DIGEST = "import hashlib, sys; print(hashlib.file_digest(sys.stdin.buffer, 'md5').hexdigest())"
MUCH = os.urandom(1 << 20) * 8
PYTHON = sys.executable


def run_with(jobs: Jobs, data: bytes, *args: object) -> tuple[int, list[str], str]:
    """Run the launcher with this on its standard input: its status, stdout's lines, and stderr."""
    running = jobs.start(*args, stdin=subprocess.PIPE)
    out, err = running.process.communicate(data, timeout=60)
    return running.process.returncode, sorted(out.decode().splitlines()), err.decode()


@pytest.mark.parametrize("where", [[], ["--hosts", "a:2,b:2", "--via", FAKE_SSH]], ids=["", "ssh"])
def test_rank_0_gets_the_whole_input(jobs: Jobs, where: list[str]) -> None:
    options = ["-n", 4, *where, "--stdin", "--no-prefix"]
    status, lines, err = run_with(jobs, MUCH, *options, PYTHON, "-c", DIGEST)
    whole, nothing = hashlib.md5(MUCH).hexdigest(), hashlib.md5(b"").hexdigest()
    assert (status, lines) == (0, sorted([whole, *[nothing] * 3])), err


def test_ranks_of_a_job_that_reads_input_are_not_forked(jobs: Jobs, tmp_path: Path) -> None:
    (tmp_path / "mine.py").touch()
    options = ["-v", "-n", 2, "--preload", "mine", "--stdin", "--no-prefix", "-C", tmp_path]
    status, lines, err = run_with(jobs, MUCH, *options, PYTHON, "-c", f"import mine; {DIGEST}")
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


def test_unreadable_input_counts_as_empty(jobs: Jobs, tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb") as file:
        ended = jobs.start("--stdin", "cat", stdin=file.fileno()).finish()
    assert (ended.status, ended.stdout) == (0, "")
    assert "--stdin: cannot read standard input: Bad file descriptor" in ended.report
    closed = ["sh", "-c", 'exec "$@" <&-', "-", *LAUNCHER]
    ended = jobs.run("--stdin", "cat", launcher=closed)
    assert (ended.status, ended.stdout, ended.stderr) == (0, "", "")


FIRST = '[ $JAX_PROCESS_ID = 0 ] || exit 0; exec "$@"'
SLOW = """
import os, signal
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
print("ready", flush=True)
signal.sigwait({signal.SIGUSR1})
print(len(os.read(0, 10)), flush=True)
"""


def test_a_slow_rank_slows_the_writer(jobs: Jobs) -> None:
    """A bounded part of the input is on its way."""
    options = ["-n", 2, "--stdin", "sh", "-c", FIRST, "-", PYTHON, "-c", SLOW]
    running = jobs.start(*options, stdin=subprocess.PIPE)
    running.read_until("ready")
    assert running.process.stdin is not None
    pipe = running.process.stdin.fileno()
    os.set_blocking(pipe, False)
    written = 0

    def full() -> bool:
        nonlocal written
        try:
            written += os.write(pipe, bytes(1 << 16))
        except BlockingIOError:  # on a busy machine all may be asleep for a moment, too
            return written > 1 << 18 and _is_idle(running)
        return False

    eventually(full)
    assert written < 1 << 20
    running.signal(signal.SIGUSR1)
    running.read_until("[0] 10\n")
    assert running.finish().status == 0


def _is_idle(running: Running) -> bool:
    """Whether the launcher and all below it only wait."""
    launcher = psutil.Process(running.process.pid)
    processes = [launcher, *launcher.children(recursive=True)]
    return all(process.status() == psutil.STATUS_SLEEPING for process in processes)


def test_writer_learns_that_rank_0_does_not_read(jobs: Jobs) -> None:
    closed = "exec <&-; trap 'exit 0' USR1; echo ready; while :; do sleep 0.01; done"
    running = jobs.start("--stdin", "-n", 2, "sh", "-c", closed, stdin=subprocess.PIPE)
    running.read_until("ready", 2)
    assert running.process.stdin is not None
    pipe = running.process.stdin.fileno()

    def refused() -> bool:
        try:
            os.write(pipe, b"x\n")
        except BrokenPipeError:
            return True
        return False

    eventually(refused)
    running.signal(signal.SIGUSR1)
    assert running.finish().status == 0


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


def test_a_job_ends_while_input_comes(jobs: Jobs) -> None:
    running = jobs.start(
        "--stdin", "-n", 2, "cat", stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    assert running.process.stdin is not None
    pipe = running.process.stdin.fileno()

    def flood() -> None:
        with pytest.raises(BrokenPipeError):
            while True:
                os.write(pipe, MUCH)

    writer = threading.Thread(target=flood)
    writer.start()
    eventually(lambda: psutil.Process(running.process.pid).cpu_times().user > 0.3)
    running.signal(signal.SIGINT)
    assert running.process.wait(30) == 130
    writer.join(30)


# Starts a launcher in the background; on a line from the terminal it brings it to the foreground.
_AS_A_SHELL = 'set -m; "$@" & until read line && [ "$line" = fg ]; do :; done; fg'


@pytest.fixture
def shell(at_terminal: Callable[..., Terminal]) -> Terminal:
    """A shell in a terminal, and a launcher in its background that reads what is typed."""
    return at_terminal("--stdin", "cat", within=["bash", "-c", _AS_A_SHELL, "-"])


def _launcher(shell: Terminal) -> psutil.Process:
    """The launcher, once its rank runs."""
    eventually(lambda: len(psutil.Process(shell.pid).children(recursive=True)) == 4)
    return psutil.Process(shell.pid).children()[0]


def _bring_to_foreground(shell: Terminal, launcher: psutil.Process) -> None:
    shell.type("fg\n")
    eventually(lambda: os.tcgetpgrp(shell.fd) == launcher.pid)
    if PORTABLE:
        launcher.send_signal(signal.SIGCONT)  # without epoll and kqueue only a shell can tell it


def test_background_launcher_leaves_input_to_the_shell(shell: Terminal) -> None:
    """It runs on, leaves what is typed to the shell, and reads when it comes to the foreground."""
    launcher = _launcher(shell)
    shell.type("for the shell\n")
    eventually(lambda: launcher.status() == psutil.STATUS_SLEEPING)
    _bring_to_foreground(shell, launcher)
    shell.type("for rank 0\n")
    shell.until("[0] for rank 0\r\n")
    shell.type("\x04")
    assert shell.finish() == 0
    assert "[0] for the shell" not in shell.shown


def test_unread_lines_in_the_background_cause_no_wakeups(shell: Terminal) -> None:
    launcher = _launcher(shell)
    os.kill(shell.pid, signal.SIGSTOP)
    shell.type("nobody reads this yet\n")
    eventually(lambda: launcher.status() == psutil.STATUS_SLEEPING)
    before = _switches(launcher)
    with pytest.raises(psutil.TimeoutExpired):
        launcher.wait(0.5)
    assert _switches(launcher) - before < 5
    os.kill(shell.pid, signal.SIGCONT)
    _bring_to_foreground(shell, launcher)
    shell.type("\x04")
    assert shell.finish() == 0


def _switches(process: psutil.Process) -> int:
    """How often it has waited."""
    return int(process.num_ctx_switches().voluntary)

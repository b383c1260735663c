"""Run the launcher as a user does, and prove that nothing of a job is left."""

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import not_linux
import psutil

PROGRAMS = Path(__file__).parent / "programs"
#: Whether the launcher supervises as on macOS, and without what Linux alone has.
PORTABLE = os.environ.get("TEST_PORTABLE", "") not in ("", "0")
LAUNCHER = [sys.executable, "-m", "mcjax_launch"]
if PORTABLE:
    LAUNCHER = [sys.executable, not_linux.launcher()]
TOKEN = "LAUNCH_TEST_TOKEN"
LIMIT_S = 150.0  # a loaded machine takes minutes for what takes seconds


@dataclass(frozen=True)
class Ended:
    """A finished run of the launcher."""

    status: int
    out: bytes
    err: bytes
    seconds: float

    @property
    def stdout(self) -> str:
        return self.out.decode()

    @property
    def stderr(self) -> str:
        return self.err.decode()

    @property
    def report(self) -> str:
        """The launcher's own lines, without their mark."""
        mark = "mcjax-launch: "
        own = [line[len(mark) :] for line in self.stderr.splitlines() if line.startswith(mark)]
        return "\n".join(own)


def eventually(check: Callable[[], object], limit: float = LIMIT_S) -> None:
    """Wait until `check` is true; the one place that waits for what sends no event."""
    deadline = time.monotonic() + limit
    while not check():
        assert time.monotonic() < deadline, f"not within {limit} s: {check}"
        time.sleep(0.01)


def shell_script(path: Path, text: str) -> Path:
    """Write a script that can be run as a command."""
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


class Running:
    """A launcher under way."""

    def __init__(self, process: "subprocess.Popen[bytes]", started: float) -> None:
        self.process = process
        self._started = started
        self.out = b""
        self.err = b""

    def read_until(self, text: str, count: int = 1) -> str:
        """Read stdout until `text` has come `count` times."""
        assert self.process.stdout is not None
        while self.out.count(text.encode()) < count:
            piece = os.read(self.process.stdout.fileno(), 65536)
            assert piece, f"ended before {text!r}: {self.out!r} {self._rest()!r}"
            self.out += piece
        return self.out.decode()

    def read_some(self) -> None:
        """Read what comes next on stdout, as long as something comes."""
        assert self.process.stdout is not None
        self.out += os.read(self.process.stdout.fileno(), 65536)

    def _rest(self) -> bytes:
        return self.process.stderr.read() if self.process.stderr is not None else b""

    def pids(self, word: str = "pid") -> list[int]:
        """The numbers that stand after `word` in what was printed so far."""
        words = pairwise(self.out.decode().split())
        return [int(after) for before, after in words if before == word]

    @property
    def guardian(self) -> psutil.Process:
        """The parent of this machine's agent."""
        return psutil.Process(self.process.pid).children()[0]

    @property
    def agent(self) -> psutil.Process:
        """This machine's agent."""
        return self.guardian.children()[0]

    def signal(self, signum: int) -> None:
        self.process.send_signal(signum)

    def kill_now(self, name: str = "SIGINT") -> None:
        """End it as a user does who does not wait for the ranks: twice, the answer read between.

        Two equal signals in a row may reach a process as one.
        """
        self.signal(signal.Signals[name])
        pipe = self.process.stderr or self.process.stdout
        assert pipe is not None
        seen = b""
        while b" again to kill " not in seen:
            piece = os.read(pipe.fileno(), 65536)
            assert piece, f"ended by one signal: {seen!r}"
            seen += piece
        if pipe is self.process.stderr:
            self.err += seen
        else:
            self.out += seen
        self.signal(signal.Signals[name])

    def finish(self, limit: float = LIMIT_S) -> Ended:
        """Wait for its end."""
        out, err = self.process.communicate(timeout=limit)
        return Ended(
            self.process.returncode,
            self.out + (out or b""),
            self.err + (err or b""),
            time.monotonic() - self._started,
        )


class Jobs:
    """Starts launchers, and finds every process that descends from them.

    Args:
        preload: MCJAX_PRELOAD of all of them; "" for none.

    """

    def __init__(self, preload: str = "") -> None:
        self._preload = {"MCJAX_PRELOAD": preload} if preload else {}
        self.token = uuid.uuid4().hex
        self._running: list[Running] = []

    def environment(self, **extra: str) -> dict[str, str]:
        """The tests' own, without what chooses options or the ranks' Python."""
        ours = ("MCJAX", "VIRTUAL_ENV", "GITHUB")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        portable = {"MCJAX_PORTABLE": "1"} if PORTABLE else {}
        return {**kept, TOKEN: self.token, **self._preload, **portable, **extra}

    def start(
        self,
        *args: object,
        env: dict[str, str] | None = None,
        cwd: "str | Path | None" = None,
        launcher: list[str] | None = None,
        stdin: int = subprocess.DEVNULL,
        stdout: int = subprocess.PIPE,
        stderr: int = subprocess.PIPE,
    ) -> Running:
        """Start the launcher with these arguments."""
        process = subprocess.Popen(
            [*(launcher or LAUNCHER), *map(str, args)],
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env=self.environment(**(env or {})),
            cwd=cwd,
            restore_signals=True,
        )
        running = Running(process, time.monotonic())
        self._running.append(running)
        return running

    def run(self, *args: object, limit: float = LIMIT_S, **how: object) -> Ended:
        """Run the launcher to its end."""
        return self.start(*args, **how).finish(limit)  # type: ignore[arg-type]

    def left(self) -> list[int]:
        """Processes of these jobs that still run, wherever they are."""
        mark = f"{TOKEN}={self.token}".encode()
        return [pid for pid in _all_pids() if mark in _environ(pid) and alive(pid)]

    def clean_up(self) -> None:
        """Kill what is left; for after the check that nothing is."""
        for pid in self.left():
            with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
                os.kill(pid, signal.SIGKILL)
        for running in self._running:
            running.process.kill()
            running.process.communicate()


def _all_pids() -> Iterator[int]:
    return iter(psutil.pids())


def _environ(pid: int) -> bytes:
    """The environment of a process; a Mac does not show that of its own programs."""
    try:
        if sys.platform == "linux":
            return Path(f"/proc/{pid}/environ").read_bytes()
        return "\0".join("=".join(pair) for pair in psutil.Process(pid).environ().items()).encode()
    except (OSError, psutil.Error):
        return b""


def described(pids: list[int]) -> str:
    """`ps` of exactly these processes."""
    if not pids:
        return ""
    columns = ["ps", "-o", "pid,ppid,pgid,sid,stat,args", "-p", ",".join(map(str, pids))]
    return subprocess.run(columns, capture_output=True, text=True).stdout

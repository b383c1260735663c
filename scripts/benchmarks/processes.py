"""The processes of a job, found by a mark in their environment."""

import contextlib
import os
import signal
import socket
import time
import uuid
from pathlib import Path

_MARK = "MARK_OF_BENCH"
_LOOK_S = 0.002


def free_port() -> int:
    """Return a TCP port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Marked:
    """All processes that inherit one environment, wherever they hide.

    Attributes:
        environ: to start the first of them with.

    """

    def __init__(self) -> None:
        self._mark = f"{_MARK}={uuid.uuid4().hex}"
        name, _, value = self._mark.partition("=")
        self.environ = {**os.environ, name: value}

    def pids(self) -> list[int]:
        """Those that live."""
        return [int(name) for name in os.listdir("/proc") if name.isdigit() and self._has(name)]

    def _has(self, pid: str) -> bool:
        try:
            return self._mark.encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            return False

    def silent_after(self, limit_s: float) -> float | None:
        """In how many seconds none is left; None if some are, after so many."""
        began = time.perf_counter()
        left = self.pids()
        while time.perf_counter() < began + limit_s:
            left = [pid for pid in left if self._has(str(pid))] or self.pids()
            if not left:
                return time.perf_counter() - began
            time.sleep(_LOOK_S)
        return None

    def kill(self) -> None:
        """End those that are left."""
        while left := self.pids():
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(_LOOK_S)


def command_of(pid: int) -> str:
    """Return the command of a process, its words separated by spaces."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    except OSError:
        return ""


def pss_mb(pid: int) -> float:
    """Return the memory of a process, with its share of shared memory, in MB."""
    fields = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in fields if line.startswith("Pss:")) / 1024

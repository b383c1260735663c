"""How any Unix supervises (macOS): psutil tells of processes, and orphans have to be looked for.

An end that no SIGCHLD tells of is looked for: only while nothing but orphans of the job is left.
"""

from __future__ import annotations

import os
import time

from ...wire import system as shared
from . import unix
from .unix import (
    Childless,
    group_of,
    reap,
    signal_group,
    signal_process,
    status_of,
)

try:
    import psutil
except ImportError:  # this Python was started without its site-packages
    import site
    import sys

    known = site.venv(site.removeduppaths())
    site.addsitepackages(known or set())
    sys.path.append(site.getusersitepackages())  # where pip installs for the Python of Xcode
    try:
        import psutil
    except ImportError:
        psutil = None

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...wire.ulimits import Limit
    from .interface import OutOfMemory
    from .members import Members
    from .unix import Ended

__all__ = [
    "adopt_orphans",
    "binds_cores",
    "blocked_in",
    "command",
    "cores",
    "descendants",
    "describe",
    "ended_child",
    "ending",
    "forks_ranks",
    "group_of",
    "handles",
    "holds_ports",
    "look_at",
    "machine",
    "main_thread",
    "memory_kib",
    "out_of_memory",
    "processes",
    "reap",
    "rename",
    "signal_group",
    "signal_process",
    "signal_undisturbed",
    "spawn",
    "status_of",
    "unfit",
    "usable_cores",
    "wait",
]

forks_ranks = False
binds_cores = False
# BSD gives a connection to any of the sockets that share a port, also to one that does not listen.
holds_ports = False

# The share of a processor that threads beside the main one may use while that waits: heartbeats.
_BESIDE = 0.02
# Between two looks for the end of orphans: at first, and at the most.
_FIRST_PAUSE_S, _MOST_PAUSE_S = 0.01, 0.2


class _Orphans:
    """When to look again for those whose parents are not here."""

    def __init__(self) -> None:
        self.members: Members | None = None
        self.look_at: float | None = None
        self._pause_s = _FIRST_PAUSE_S

    def none(self) -> None:
        self.look_at, self._pause_s = None, _FIRST_PAUSE_S

    def some(self) -> None:
        self.look_at = time.monotonic() + self._pause_s
        self._pause_s = min(_MOST_PAUSE_S, self._pause_s * 1.5)


_orphans = _Orphans()


def unfit() -> str:
    """Why this Python cannot be an agent."""
    if psutil is not None:
        return ""
    python = sys.executable
    return f"psutil is missing, which this system needs: {python} -m pip install psutil"


def rename(name: str) -> None:
    """Nothing: it has a command line of its own."""


def adopt_orphans(folder: str) -> None:
    """Look for orphans, as nothing brings them here."""
    from .members import Members

    _orphans.members = Members(folder)


def machine() -> str:
    """The same for two agents if and only if loopback is the same for both."""
    return f"{os.uname().nodename} {psutil.boot_time():.0f}"


def cores() -> list[list[int]]:
    """None: macOS binds no process to cores."""
    return []


def usable_cores() -> int:
    """On how many hardware threads this process may run."""
    return psutil.cpu_count() or 0


def memory_kib() -> tuple[int, int]:
    """The memory of this machine, and what is free of it."""
    memory = psutil.virtual_memory()
    return memory.total // 1024, memory.available // 1024


def spawn(
    argv: Sequence[str],
    env: dict[str, str],
    cwd: str,
    standard: Sequence[int],
    cores: Sequence[int] | None = None,
    files_limit: Limit | None = None,
) -> int:
    """Start a process in a session of its own; see `interface.System`."""
    members = _orphans.members
    if members is None:
        return unix.spawn(argv, env, cwd, standard, files_limit)
    chosen = {shared.VARIABLE: "1"} if shared.VARIABLE in os.environ else {}
    env = {**env, **chosen, **members.mark}
    pid = unix.spawn(argv, env, cwd, standard, files_limit)
    members.add(pid)
    return pid


def ended_child() -> Ended | None:
    """A child that has ended, not reaped yet; None if all still run, or an orphan does."""
    try:
        ended = unix.ended_child()
    except Childless:
        if not descendants():
            _orphans.none()
            raise
        _orphans.some()
        return None
    _orphans.none()
    return ended


def look_at() -> float | None:
    """When to look again whether orphans have ended."""
    return _orphans.look_at


def wait() -> None:
    """Wait until a child ends, or it is time to look for the end of orphans."""
    if _orphans.look_at is not None:
        time.sleep(_FIRST_PAUSE_S)
    else:
        unix.wait()


class _NobodyTells:
    def evidence(self, pid: int) -> None:
        return None


def out_of_memory() -> OutOfMemory:
    """Nobody tells."""
    return _NobodyTells()


def ending(processes: dict[int, int]) -> frozenset[int]:
    """Those that have ended, and are not reaped."""
    return frozenset(name for pid, name in processes.items() if _has_ended(pid))


def _has_ended(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return True


def handles(pid: int, signum: int) -> bool:
    """Whether a process does not die of it: none does of what hooks without Linux handle."""
    return bool(signum)


def descendants() -> list[int]:
    """The processes of the job, wherever they are; no zombies."""
    return _orphans.members.living() if _orphans.members is not None else []


class _Process:
    def __init__(self, pid: int) -> None:
        process = psutil.Process(pid)
        self.pid = pid
        self.session = os.getsid(pid)
        with process.oneshot():
            self.parent: int = process.ppid()
            self.cpu_s = _seconds(process)
            self.rss_kib: int = process.memory_info().rss // 1024


def _seconds(process: psutil.Process) -> float:
    used = process.cpu_times()
    return float(used.user + used.system)


def processes() -> list[_Process]:
    """Those of the job."""
    found = map(_process, descendants())
    return [process for process in found if process is not None]


def _process(pid: int) -> _Process | None:
    try:
        return _Process(pid)
    except (psutil.Error, OSError):  # it has gone meanwhile
        return None


def main_thread(pid: int) -> tuple[float, int]:
    """What all threads have used beyond `_BESIDE`: macOS tells of single ones only to root."""
    try:
        process = psutil.Process(pid)
        return _seconds(process) - _BESIDE * (time.time() - process.create_time()), 0
    except psutil.Error:
        return 0.0, 0


def command(pid: int) -> list[str]:
    """The command line of a process; empty where it cannot be read."""
    try:
        return list(psutil.Process(pid).cmdline())
    except (psutil.Error, OSError):
        return []


def describe(pid: int) -> str:
    """A process for a person: `"sleep" is sleeping in the kernel`."""
    try:
        process = psutil.Process(pid)
        name, status = process.name(), process.status()
    except (psutil.Error, OSError):
        return "the process has ended"
    words = {
        psutil.STATUS_RUNNING: "running, or waiting" if psutil.MACOS else "running",
        psutil.STATUS_SLEEPING: "sleeping in the kernel",
        psutil.STATUS_STOPPED: "stopped",
    }
    return f'"{name}" is {words.get(status, f"in state {status}")}'


def signal_undisturbed(pid: int, signum: int) -> bool:
    """Nobody tells what a thread waits for."""
    return False


def blocked_in(pid: int) -> str:
    """Nobody tells."""
    return ""

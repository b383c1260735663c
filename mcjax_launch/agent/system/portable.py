"""Supervision on any Unix (macOS): psutil shows processes, and orphans are searched for.

A process belongs to the job if its parent does, if it is in the session of a rank, or if the job's
mark is in its environment. While only orphans are left, whose ends SIGCHLD does not announce, they
are checked periodically.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time

from ...machine import system as shared
from .unix import Childless, EndedChild, HostProcess, Unix

try:
    import psutil
except ImportError:  # this Python was started without its site-packages
    import site

    known = site.venv(site.removeduppaths())
    site.addsitepackages(known or set())
    sys.path.append(site.getusersitepackages())  # where pip installs for the Python of Xcode
    try:
        import psutil
    except ImportError:
        psutil = None

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from .unix import Invocation

# Variable of every rank, with its job's private folder on this host. MCJAX_JOB_ID would not be
# enough, because a job may have several agents on one machine.
_MARK = "MCJAX_LOCAL_JOB"
# Seconds between two checks for the end of orphans: at first, and at most.
_FIRST_PAUSE_S, _MOST_PAUSE_S = 0.01, 0.2


class Portable(Unix):
    """Implementation of `Unix` with psutil and a search for orphans."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = ""  # the job's private folder, once orphans are searched for
        self._ranks: dict[int, psutil.Process] = {}  # the started ranks, by pid
        self._check_at: float | None = None
        self._pause_s = _FIRST_PAUSE_S

    def explain_unfitness(self) -> str:
        if psutil is not None:
            return ""
        python = sys.executable
        return f"psutil is missing, which this system needs: {python} -m pip install psutil"

    def adopt_orphans(self, folder: str) -> None:
        self._folder = folder

    def get_machine_id(self) -> str:
        return f"{os.uname().nodename} {psutil.boot_time():.0f}"

    def _find_and_start(self, program: Invocation) -> int:
        chosen = {shared.VARIABLE: "1"} if shared.VARIABLE in os.environ else {}
        if self._folder:
            program = program.copy_with(env={**program.env, **chosen, _MARK: self._folder})
        pid = super()._find_and_start(program)
        with contextlib.suppress(psutil.Error):
            self._ranks[pid] = psutil.Process(pid)
        return pid

    # --- deaths ---

    def find_ended_child(self) -> EndedChild | None:
        self._check_at = None
        try:
            ended = super().find_ended_child()
        except Childless:
            if self.list_descendants():
                self._check_at = time.monotonic() + self._pause_s
                self._pause_s = min(_MOST_PAUSE_S, self._pause_s * 1.5)
                return None
            raise
        self._pause_s = _FIRST_PAUSE_S
        return ended

    def get_check_time(self) -> float | None:
        return self._check_at

    def wait_for_child(self) -> None:
        if self._check_at is not None:
            time.sleep(_FIRST_PAUSE_S)
        else:
            super().wait_for_child()

    def _is_ending(self, pid: int) -> bool:
        try:
            return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
        except psutil.Error:
            return True

    # --- processes ---

    def list_descendants(self) -> list[int]:
        """Return the pids of all processes of the job below the agent, without zombies."""
        if not self._folder:
            return []
        me = psutil.Process()
        found = dict.fromkeys(_list_child_processes(me))
        # A rank's pid is not reused while its session has a member.
        led = {
            pid
            for pid, rank in self._ranks.items()
            if rank.is_running() or not psutil.pid_exists(pid)
        }
        for process in psutil.process_iter():
            if process not in found and process != me and self._is_ours(process, led):
                found.update(dict.fromkeys([process, *_list_child_processes(process)]))
        return [process.pid for process in found if _lives(process)]

    def _is_ours(self, process: psutil.Process, led: set[int]) -> bool:
        with contextlib.suppress(psutil.Error, OSError):  # gone, or another user's
            if process.pid and os.getsid(process.pid) in led:
                return True
            return bool(process.environ().get(_MARK) == self._folder)
        return False

    def read_environ(self, pid: int) -> dict[str, str]:
        with contextlib.suppress(psutil.Error, OSError):
            return dict(psutil.Process(pid).environ())
        return {}

    def list_processes(self) -> list[HostProcess]:
        found = []
        for pid in self.list_descendants():
            with contextlib.suppress(psutil.Error, OSError):  # it is gone meanwhile
                process = psutil.Process(pid)
                with process.oneshot():
                    used, rss_kib = _read_cpu_s(process), process.memory_info().rss // 1024
                    found.append(HostProcess(pid, process.ppid(), os.getsid(pid), used, rss_kib))
        return found

    def read_command(self, pid: int) -> list[str]:
        try:
            return list(psutil.Process(pid).cmdline())
        except (psutil.Error, OSError):
            return []

    def describe(self, pid: int) -> str:
        """Describe a process for the user: `"sleep" is sleeping in the kernel`."""
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


def _read_cpu_s(process: psutil.Process) -> float:
    used = process.cpu_times()
    return float(used.user + used.system)


def _list_child_processes(process: psutil.Process) -> list[psutil.Process]:
    with contextlib.suppress(psutil.Error):
        return list(process.children(recursive=True))
    return []


def _lives(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    return False

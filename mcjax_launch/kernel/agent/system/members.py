"""Which processes are a job's, where no kernel brings orphans back to the agent.

A process belongs to the job if its parent does, if it is in the session or group of a rank, or if
the job's mark is in its environment.
"""

from __future__ import annotations

import contextlib
import os

import psutil

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

# In the environment of every rank: the private folder of its job on this host. MCJAX_JOB_ID would
# not do: a job may have several agents on one machine.
_MARK = "MCJAX_LOCAL_JOB"


class Members:
    """The processes of a job on this host, but for its agent and guardian, which each have one.

    Args:
        folder: the job's private one.

    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._started: dict[int, psutil.Process] = {}

    @property
    def mark(self) -> dict[str, str]:
        """What a process of the job has in its environment."""
        return {_MARK: self._folder}

    def add(self, pid: int) -> None:
        """Note a rank that has just been started."""
        with contextlib.suppress(psutil.Error):
            self._started[pid] = psutil.Process(pid)

    def living(self) -> list[int]:
        """Those that have not ended, parents first."""
        me = psutil.Process()
        found = dict.fromkeys(me.children(recursive=True))
        # No other process gets a rank's number while its session or group has a member.
        led = {
            pid
            for pid, rank in self._started.items()
            if rank.is_running() or not psutil.pid_exists(pid)
        }
        for process in psutil.process_iter():
            if process not in found and process != me and self._is_ours(process, led):
                found.update(dict.fromkeys([process, *_below(process)]))
        return [process.pid for process in found if _lives(process)]

    def _is_ours(self, process: psutil.Process, led: set[int]) -> bool:
        with contextlib.suppress(psutil.Error, OSError):  # gone, or another user's
            if process.pid and {os.getsid(process.pid), os.getpgid(process.pid)} & led:
                return True
            return bool(process.environ().get(_MARK) == self._folder)
        return False


def _below(process: psutil.Process) -> Iterator[psutil.Process]:
    with contextlib.suppress(psutil.Error):
        yield from process.children(recursive=True)


def _lives(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    return False

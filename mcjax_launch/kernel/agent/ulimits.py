"""Limits of a process (ulimit) whose excess makes the kernel end it."""

from __future__ import annotations

import signal

from .system import system

_CPU_TIME, _FILE_SIZE = "Max cpu time", "Max file size"
# Seconds: the kernel's limit counts ticks, which differ from the time that it reports.
_INEXACT_S = 0.3


class ProcessLimits:
    """Limits of an ended process, read before it is reaped.

    Args:
        pid: pid of a process that has ended and has not been reaped.
        status: exit status; below 0: minus the number of the signal that ended the process.

    """

    def __init__(self, pid: int, status: int) -> None:
        self._signal = -status
        wanted = self._signal in (signal.SIGXCPU, signal.SIGXFSZ, signal.SIGKILL)
        lines = system.limits(pid).splitlines() if wanted else []
        self._cpu_s = _values(lines, _CPU_TIME)
        self._file_bytes = _values(lines, _FILE_SIZE)

    def exceeded(self, cpu_s: float) -> str:
        """Return a sentence on the limit that ended the process; "" if none is known to have.

        Args:
            cpu_s: processor time that the process has used, in seconds.

        """
        soft, hard = self._cpu_s
        if self._signal == signal.SIGXCPU and soft is not None:
            # The kernel raises the soft limit by a second with each signal.
            return _of_cpu_time(soft - 1)
        if self._signal == signal.SIGKILL and hard is not None and cpu_s > hard - _INEXACT_S:
            return _of_cpu_time(hard)
        size = self._file_bytes[0]
        if self._signal == signal.SIGXFSZ and size is not None:
            return f"a file has reached the limit of {size} bytes; raise ulimit -f"
        return ""


def _of_cpu_time(seconds: int) -> str:
    return f"it has used up its {seconds} s of processor time; raise ulimit -t"


def _values(lines: list[str], name: str) -> tuple[int | None, int | None]:
    """Return the soft and hard limit in the line that starts with `name`; None if unlimited."""
    words = next((line[len(name) :].split() for line in lines if line.startswith(name)), [])
    soft, hard = [int(word) if word.isdecimal() else None for word in words[:2]] or [None, None]
    return soft, hard

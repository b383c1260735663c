"""Limits of a process (ulimit) whose excess makes the kernel end it."""

from __future__ import annotations

import signal

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from ..machine.system import Limit

# Seconds: the kernel's limit counts ticks, which differ from the time that it reports.
_INEXACT_S = 0.3


def explain_exceeded_limit(signum: int, cpu_time: Limit, file_size: Limit, cpu_s: float) -> str:
    """Return a sentence on the limit that ended a process; "" if none is known to have.

    Args:
        signum: signal that ended the process.
        cpu_time: limits of its processor time in seconds, below 0 if unlimited.
        file_size: limits of a file's bytes, below 0 if unlimited.
        cpu_s: processor time that the process has used, in seconds.

    """
    soft, hard = cpu_time
    if signum == signal.SIGXCPU and soft > 0:
        # The kernel raises the soft limit by a second with each signal.
        return _explain_cpu_limit(soft - 1)
    if signum == signal.SIGKILL and 0 < hard < cpu_s + _INEXACT_S:
        return _explain_cpu_limit(hard)
    if signum == signal.SIGXFSZ and file_size[0] >= 0:
        return f"a file has reached the limit of {file_size[0]} bytes; raise ulimit -f"
    return ""


def _explain_cpu_limit(seconds: int) -> str:
    return f"it has used up its {seconds} s of processor time; raise ulimit -t"

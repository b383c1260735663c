"""Child processes of a rank that has called initialize(); they are not ranks themselves.

`multiprocessing` imports the program's main module again in each process that it starts, which
calls initialize() again unless the call is guarded. JAX ends a job in which two processes join with
the same number, so the hook skips that call, and the process does its work alone.
"""

from __future__ import annotations

import os
import sys

from ..wire.hook_environ import MEMBER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


def record_call(filled: Mapping[str, Any]) -> None:
    """Record this call of initialize() in an environment variable that child processes inherit."""
    os.environ[MEMBER] = f"{os.getpid()} {_format_call(filled)}"


def forget_call() -> None:
    """Remove the recorded call: this process has left the job, or could not join it."""
    if os.environ.get(MEMBER, "").startswith(f"{os.getpid()} "):
        del os.environ[MEMBER]


def is_below(environ: Mapping[str, str]) -> bool:
    """Return whether an ancestor of this process has called initialize().

    Args:
        environ: environment variables with which this process was started.

    """
    caller = _find_caller(environ)[0]
    return caller not in ("", str(os.getpid()))  # equal: this process has called exec


def repeats(environ: Mapping[str, str], filled: Mapping[str, Any]) -> bool:
    """Return whether a call of initialize() repeats an ancestor's call.

    Args:
        environ: environment variables with which this process was started.
        filled: arguments of the call; a call with other arguments starts another job.

    """
    same = _find_caller(environ)[1] == _format_call(filled)
    return (is_below(environ) and same) or imports_main_again()


def _find_caller(environ: Mapping[str, str]) -> tuple[str, str]:
    """Return pid and arguments of the last call of initialize(), here or in an ancestor.

    Both are "" if there was none. A fork has the variable only in os.environ, not in `environ`.
    """
    pid, _, call = os.environ.get(MEMBER, environ.get(MEMBER, "")).partition(" ")
    return pid, call


def _format_call(filled: Mapping[str, Any]) -> str:
    return f"{filled['process_id']} {filled['coordinator_address']}"


def imports_main_again() -> bool:
    """Return whether multiprocessing is importing the parent's main module here."""
    frame = sys._getframe(1)
    while frame.f_back is not None:
        if frame.f_globals.get("__name__") == "__mp_main__" and frame.f_code.co_name == "<module>":
            return True
        frame = frame.f_back
    return False

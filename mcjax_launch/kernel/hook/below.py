"""Processes below a rank: started by one that has called initialize(), and no ranks themselves.

`multiprocessing` imports the program's main module again in each process that it starts, and so
calls initialize() once more where nothing guards the call. JAX ends a job in which two processes
join as one, so that call is left out, and the process does its work alone.
"""

from __future__ import annotations

import os
import sys

from ..wire.hook_environ import MEMBER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


def note_call(filled: Mapping[str, Any]) -> None:
    """Have all processes that this one starts from now on know of its call of initialize()."""
    os.environ[MEMBER] = f"{os.getpid()} {_call(filled)}"


def forget_call() -> None:
    """Let the next process call initialize(): this one has left the job, or could not join it."""
    if os.environ.get(MEMBER, "").startswith(f"{os.getpid()} "):
        del os.environ[MEMBER]


def is_below(environ: Mapping[str, str]) -> bool:
    """Return whether a process that has called initialize() has started this one.

    Args:
        environ: of this process, as it was started.

    """
    caller = _caller(environ)[0]
    return caller not in ("", str(os.getpid()))  # its own where it has replaced its program


def repeats(environ: Mapping[str, str], filled: Mapping[str, Any]) -> bool:
    """Return whether a call of initialize() is the one of a process above this one.

    Args:
        environ: of this process, as it was started.
        filled: the arguments of the call; others make a job of their own.

    """
    same = _caller(environ)[1] == _call(filled)
    return (is_below(environ) and same) or imports_main_again()


def _caller(environ: Mapping[str, str]) -> tuple[str, str]:
    """Return the process that called initialize() last, of this one and those above, and its call.

    A fork was not started with the variable, but has it.
    """
    pid, _, call = os.environ.get(MEMBER, environ.get(MEMBER, "")).partition(" ")
    return pid, call


def _call(filled: Mapping[str, Any]) -> str:
    return f"{filled['process_id']} {filled['coordinator_address']}"


def imports_main_again() -> bool:
    """Return whether multiprocessing is importing the main module of the process above."""
    frame = sys._getframe(1)
    while frame.f_back is not None:
        if frame.f_globals.get("__name__") == "__mp_main__" and frame.f_code.co_name == "<module>":
            return True
        frame = frame.f_back
    return False

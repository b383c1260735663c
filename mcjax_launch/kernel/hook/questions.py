"""Signals by which the agent asks questions that the main thread answers.

Python runs the handlers between two steps of the program, in its main thread, usually while no
other thread runs Python; see `runs_one_thread`.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType


def answer_signal(
    signum: int, answer: Callable[[int, FrameType | None], object], *, interrupt: bool = False
) -> bool:
    """Answer a signal with `answer` until Python ends; return whether that is possible.

    Args:
        signum: the signal; 0 if there is none.
        answer: handles it, in the main thread.
        interrupt: whether the signal interrupts the main thread's system calls, which C code may
            not expect.

    """
    if not signum:
        return False
    import atexit
    import signal

    try:
        if signal.getsignal(signum) is not signal.SIG_DFL:  # the program's own handler
            return False
        signal.signal(signum, answer)
        signal.siginterrupt(signum, interrupt)
    except (ValueError, OSError):  # not in the main thread
        return False
    # At its end Python restores the default action, which kills, and a signal may be pending.
    atexit.register(signal.signal, signum, signal.SIG_IGN)
    return True


def runs_one_thread() -> bool:
    """Return whether no other thread runs Python during an answer: false without the GIL."""
    return bool(getattr(sys, "_is_gil_enabled", lambda: True)())

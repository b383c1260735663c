"""Signals by which the agent asks something that the main thread answers.

Python acts on them between two steps of the program, in its main thread, as a rule while no
other thread runs Python; see `one_at_a_time`.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType


def heed(
    signum: int, answer: Callable[[int, FrameType | None], object], *, interrupt: bool = False
) -> bool:
    """Have a signal answered from now on, until Python ends; whether that can be.

    Args:
        signum: 0 if there is none.
        answer: handles it, in the main thread.
        interrupt: the main thread's wait in the kernel, which C code may not expect.

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
    # Python's end gives it its default action, which is to kill: one may be on its way.
    atexit.register(signal.signal, signum, signal.SIG_IGN)
    return True


def one_at_a_time() -> bool:
    """Whether no other thread runs Python while an answer is given: not without Python's lock."""
    return bool(getattr(sys, "_is_gil_enabled", lambda: True)())

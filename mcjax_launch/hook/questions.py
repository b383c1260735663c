"""Signals with which the agent asks the main thread for information.

Python runs the handlers between two bytecodes of the main thread.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType


def answer_signal(signum: int, answer: Callable[[int, FrameType | None], object]) -> bool:
    """Install `answer` as a signal's handler until Python ends; return whether that succeeded.

    Args:
        signum: number of the signal; 0 to do nothing and return False.
        answer: handler of the signal, called in the main thread.

    """
    if not signum:
        return False
    import atexit
    import signal

    try:
        if signal.getsignal(signum) is not signal.SIG_DFL:  # the program's own handler
            return False
        signal.signal(signum, answer)
        signal.siginterrupt(signum, False)  # C code may not expect it
    except (ValueError, OSError):  # not in the main thread
        return False
    # At its end Python restores the default action, which kills, and a signal may be pending.
    atexit.register(signal.signal, signum, signal.SIG_IGN)
    return True

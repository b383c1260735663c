"""Says where the main thread is, when the agent asks by a signal.

Python acts on a signal between two steps of the program, in its main thread: nothing that waits is
cut short, and no other thread looks at frames that change. faulthandler, which does that, crashes a
program now and then that runs.
"""

from __future__ import annotations

import sys

from ...kernel.hook.part import RankPart
from ...kernel.wire import source_lines, system
from .messages import StandsAt

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

_MOST_FRAMES = 100


class Answering(RankPart):
    """Answers from initialize() on."""

    def joined(self) -> bool:
        """Begin; no profile follows from that."""
        try:
            import atexit
            import signal

            signum = system.place_signal()
            if signum and signal.getsignal(signum) is signal.SIG_DFL:  # or it is the program's own
                signal.signal(signum, self._answer)
                signal.siginterrupt(signum, False)  # C code may not expect to be interrupted
                # Python's end gives it its default action, which is to kill: one may be on its way.
                atexit.register(signal.signal, signum, signal.SIG_IGN)
        except (ValueError, OSError):  # not in the main thread
            pass
        return False

    def _answer(self, _signum: int, frame: FrameType | None) -> None:
        try:
            self.link.send(StandsAt("\n".join(_dumped(frame)), _is_jax_beside(frame)))
        except Exception:
            pass


def _dumped(frame: FrameType | None) -> Iterator[str]:
    """As faulthandler writes it."""
    yield "Stack (most recent call first):"
    for _ in range(_MOST_FRAMES):
        if frame is None:
            return
        code = frame.f_code
        yield f'  File "{code.co_filename}", line {frame.f_lineno} in {code.co_name}'
        frame = frame.f_back


def _is_jax_beside(frame: FrameType | None) -> bool:
    """Whether another thread is in JAX, for which the main one may wait in Python's own library."""
    if frame is None or source_lines.owner(frame.f_code.co_filename) != source_lines.PYTHON:
        return False
    others = sys._current_frames().values()
    return any(source_lines.is_jax(one.f_code.co_filename) for one in others)


PART = Answering

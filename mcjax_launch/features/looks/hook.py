"""Says where the main thread is, when the agent asks by a signal."""

from __future__ import annotations

import sys

from ...kernel.hook.part import RankPart
from ...kernel.hook.questions import heed
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
        heed(system.place_signal(), self._answer)
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

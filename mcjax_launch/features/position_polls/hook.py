"""Answers of the main thread about its position, when the agent asks by a signal."""

from __future__ import annotations

import sys

from ...hook.part import RankPart
from ...hook.questions import answer_signal
from ...machine import system
from ...wire import source_lines
from .messages import ThreadPosition

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

_MOST_FRAMES = 100


class PositionReporter(RankPart):
    """Part that answers polls of the main thread's position after initialize()."""

    def on_join(self) -> None:
        """Begin to answer."""
        answer_signal(system.get_position_signal(), self._answer)

    def _answer(self, _signum: int, frame: FrameType | None) -> None:
        try:
            self.link.send(ThreadPosition("\n".join(_format_stack(frame)), _is_jax_beside(frame)))
        except Exception:
            pass


def _format_stack(frame: FrameType | None) -> Iterator[str]:
    """Yield a frame's stack in faulthandler's format."""
    yield "Stack (most recent call first):"
    for _ in range(_MOST_FRAMES):
        if frame is None:
            return
        code = frame.f_code
        yield f'  File "{code.co_filename}", line {frame.f_lineno} in {code.co_name}'
        frame = frame.f_back


def _is_jax_beside(frame: FrameType | None) -> bool:
    """Return whether the main thread may wait in Python's library for a thread that is in JAX."""
    if frame is None or source_lines.find_owner(frame.f_code.co_filename) != source_lines.PYTHON:
        return False
    others = sys._current_frames().values()
    return any(source_lines.is_jax(other.f_code.co_filename) for other in others)


PART = PositionReporter

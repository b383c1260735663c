"""Search for the user's line that is being executed."""

from __future__ import annotations

import sys

from ..wire import source_lines

TYPE_CHECKING = False  # as typing's own, without importing it: every start of Python pays for it
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import FrameType
    from typing import TypeVar

    F = TypeVar("F")


def find_user_frame(frames: Iterable[F], filename: Callable[[F], str]) -> F | None:
    """Return the innermost frame of user code, else of a library, else any but ours, else None.

    Args:
        frames: the frames, innermost first.
        filename: function that returns a frame's file name.

    """
    library = other = None
    for frame in frames:
        name = filename(frame)
        owner = source_lines.find_owner(name)
        if owner == source_lines.USER:
            return frame
        if owner == source_lines.OURS or source_lines.is_frozen(name):
            continue
        if library is None and owner != source_lines.PYTHON and not source_lines.is_jax(name):
            library = frame
        other = other or frame
    return library or other


def find_current_frame() -> FrameType | None:
    """Return the innermost frame of user code on the call stack; see `find_user_frame`."""
    return find_user_frame(
        _iterate_outwards(sys._getframe(1)), lambda frame: frame.f_code.co_filename
    )


def find_current_line() -> str:
    """Return the user's line that is being executed, as `train.py:88`; "" if there is none."""
    frame = find_current_frame()
    if frame is None:
        return ""
    return f"{source_lines.format_path(frame.f_code.co_filename)}:{frame.f_lineno}"


def find_library_call(file: str) -> str:
    """Return the function that a library's file has been entered by; "" if it is not executing.

    Args:
        file: end of the file's path.

    """
    codes = (frame.f_code for frame in _iterate_outwards(sys._getframe(1)))
    entered = [code.co_name for code in codes if code.co_filename.endswith(file)]
    return entered[-1] if entered else ""


def find_handler(name: str) -> str:
    """Return where the program's own handler of a signal is, as `train.py:7`; "" if it has none."""
    import signal

    code = getattr(signal.getsignal(signal.Signals[name]), "__code__", None)
    if code is None or source_lines.find_owner(code.co_filename) in (
        source_lines.OURS,
        source_lines.PYTHON,
    ):
        return ""
    return f"{source_lines.format_path(code.co_filename)}:{code.co_firstlineno}"


def _iterate_outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back

"""Whose a line of code is: the user's, a library's, JAX's or Python's own."""

import os
import sys

_PYTHON = os.path.dirname(os.__file__)
_HERE = os.path.dirname(os.path.abspath(__file__))
_PACKAGES = ("site-packages", "dist-packages")
_OF_JAX = tuple(
    f"{os.sep}{packages}{os.sep}{name}{os.sep}"
    for packages in _PACKAGES
    for name in ("jax", "jaxlib")
)


def is_jax(filename):
    """Whether a file belongs to JAX."""
    return any(part in filename for part in _OF_JAX)


def is_users(filename):
    """Whether a file belongs to no library and not to the interpreter."""
    if filename.startswith(("<frozen", _HERE)) or any(name in filename for name in _PACKAGES):
        return False
    return not filename.startswith(_PYTHON)


def users(frames, filename):
    """The innermost of `frames` that is the user's own, else a library's; None: ours at most.

    Args:
        frames: innermost first.
        filename: gives the file's name of one of them.

    """
    second = first = None
    for frame in frames:
        name = filename(frame)
        if name.startswith(("<frozen", _HERE)):
            continue
        if is_users(name):
            return frame
        if second is None and any(part in name for part in _PACKAGES) and not is_jax(name):
            second = frame
        first = first or frame
    return second or first


def here():
    """The frame of the user's line that is being executed, or None."""
    return users(_frames(sys._getframe(1)), lambda frame: frame.f_code.co_filename)


def place():
    """Where the user's line is that is being executed, as `train.py:88`."""
    frame = here()
    return f"{shown(frame.f_code.co_filename)}:{frame.f_lineno}" if frame is not None else ""


def _frames(frame):
    while frame is not None:
        yield frame
        frame = frame.f_back


def shown(filename):
    """A file's name as the user would write it: relative, if it is below the working directory."""
    try:
        below = os.path.relpath(filename)
    except (OSError, ValueError):
        return filename
    return filename if below.startswith(os.pardir) else below

"""Removal of colours from a rank's output, so that its text can be recognized; pure."""

import re

# Python colours its tracebacks with FORCE_COLOR, and on a terminal from Python 3.13 on.
_COLOURS = rb"\x1b\[[0-9;:]*m"


def remove_colours(text: bytes) -> bytes:
    """Return a text without the escape sequences that set colours."""
    return re.sub(_COLOURS, b"", text) if b"\x1b" in text else text

"""Python's tracebacks in what a rank says, and which of them are victims'; pure."""

import re

from mcjax_launch.jax_messages.lost_peer import is_of_lost_peer

#: How each begins.
START = b"Traceback (most recent call last):"
# A log's "INFO: text" between the frames is taken for one: that only leaves more to be shown.
_EXCEPTION = re.compile(rb"(?:[A-Za-z_]\w*\.)*([A-Za-z_]\w*)(?:: .*)?")


def is_exception(line: bytes) -> bool:
    """Whether a line of a traceback is the one that names the exception."""
    return _EXCEPTION.fullmatch(line) is not None


def whose(data: bytes | bytearray) -> list[bool | None]:
    """Of each traceback in whole lines of `data`: whether it is a victim's; None: it goes on."""
    found: list[bool | None] = []
    for line in data.split(b"\n")[:-1]:
        if line == START:
            found.append(None)
        elif found and found[-1] is None and (exception := _EXCEPTION.fullmatch(line)):
            words = line.decode("utf-8", "replace")
            found[-1] = is_of_lost_peer(exception[1].decode(), words)
    return found

"""Detection of a connection that changes the bytes it carries, by the agent's first bytes."""

import re

from mcjax_launch.wire.frames import MAGIC

_TEXT = MAGIC.strip(b"\0\n")
_MESSAGE = re.compile(rb'\["(Greeting|Ping|InternalError)",\[')
# Percentage of unprintable characters that a line of text may have.
_MOST_ODD = 10


def describe_mangling(received: bytes) -> str:
    """Return a clause on how a connection has changed an agent's first bytes; "" if unchanged.

    Args:
        received: all bytes received so far, which do not contain frames.MAGIC.

    """
    _, text, after = received.rpartition(_TEXT)
    if text:
        if len(after) < len(MAGIC.partition(_TEXT)[2]):
            return ""
        if after.startswith(b"\0\r"):
            return "line ends have become CR LF"
        return "bytes have been changed" if after.startswith(b"\0") else "NUL bytes are missing"
    return "its beginning is missing" if _MESSAGE.search(received) else ""


def is_text(line: str) -> bool:
    """Return whether a line is readable enough to be shown to the user."""
    shown = line.replace("\t", " ").replace("\N{REPLACEMENT CHARACTER}", "\0")
    odd = sum(not char.isprintable() for char in shown)
    return odd * 100 <= _MOST_ODD * len(line)

"""A connection that changes what goes through it: how its first bytes show that; pure."""

import re

from mcjax_launch.kernel.wire.frames import MAGIC

_TEXT = MAGIC.strip(b"\0\n")
_MESSAGE = re.compile(rb'\["(Greeting|Ping|InternalError)",\[')
# Of a line that is no text, so many characters in a hundred are none.
_MOST_ODD = 10


def mangling(received: bytes) -> str:
    """Return what a connection does to an agent's first words; "" if none have come.

    Args:
        received: all that has come, without the mark that an agent begins with.

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
    """Return whether a line can be shown as the words of a program or a person."""
    shown = line.replace("\t", " ").replace("\N{REPLACEMENT CHARACTER}", "\0")
    odd = sum(not char.isprintable() for char in shown)
    return odd * 100 <= _MOST_ODD * len(line)

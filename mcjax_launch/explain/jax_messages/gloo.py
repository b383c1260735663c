"""Recognition of Gloo's lines on stdout, one for each connection; pure."""

import re

# Gloo writes a line in pieces, so two threads of one rank mix theirs: "[Gloo] Rank [Gloo] Rank 0
# is connected to ..." and then "1 is connected to ...". Each is made of these pieces alone.
_GLOO_PIECES = (
    rb"\[Gloo\] Rank | is connected to | peer ranks\. |"
    rb"Expected number of connected peer ranks is : "
)
#: The usual beginning of Gloo's lines.
GLOO_START = b"[Gloo] Rank "
_GLOO = rb"\d*(?:%b)(?:\d|%b)*" % (_GLOO_PIECES, _GLOO_PIECES)
# Nearly all of Gloo's lines hold these: a long text, which is found fast, and a byte, which is
# found faster still.
_GLOO_MARK = b"Expected number of connected peer ranks is : "
_GLOO_BYTE = b"E"


def is_gloo(line: bytes) -> bool:
    """Return whether a whole line is Gloo's message about connected peers."""
    return re.fullmatch(_GLOO, line) is not None


class GlooListener:
    """A recognizer of Gloo's lines in one stream, including lines mixed by two threads."""

    def __init__(self) -> None:
        self._owed = 0  # ends of mixed lines that are yet to come
        self._line = b""

    def recognize(self, line: bytes) -> bool:
        """Return whether the stream's next line is Gloo's, or the rest of a mixed line."""
        if is_gloo(line):
            self._owed = max(0, self._owed + line.count(b"[Gloo] Rank ") - 1)
            self._line = line
            return True
        if self._owed and (not line or (line.isdigit() and line in self._line)):
            self._owed -= 1
            return True
        self._owed = 0
        return False

    def may_be_in(self, data: bytes) -> bool:
        """Return quickly whether Gloo's lines may be in `data`."""
        return self._owed > 0 or (_GLOO_BYTE in data and _GLOO_MARK in data)

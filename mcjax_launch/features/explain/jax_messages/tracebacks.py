"""Parser of Python's tracebacks in a rank's output, which recognizes a victim's; pure.

An argparse message about a wrong command line counts as a traceback without calls.
"""

import re

from mcjax_launch.features.explain.jax_messages.lost_peer import is_of_lost_peer
from mcjax_launch.journal.tails import remove_colours

# The first line of each traceback.
_START = b"Traceback (most recent call last):"
# Lines between two tracebacks: the second exception was raised because of the first.
_CHAINS = (
    b"During handling of the above exception, another exception occurred:",
    b"The above exception was the direct cause of the following exception:",
)
# A log's "INFO: text" between frames matches too; then more is shown than necessary.
_EXCEPTION = rb"(?:[A-Za-z_]\w*\.)*([A-Za-z_]\w*)(?:: .*)?"
_USAGE = b"usage: "
_WRONG_USAGE = rb"\S.*: error: .*"
_FRAME = rb'(?s)  File "(.*)", line \d+, in .*'


class Traceback:
    """A traceback, together with the tracebacks chained to it.

    Args:
        of_usage: True for argparse's message about a wrong command line.

    Attributes:
        is_over: True if its last line has arrived; another traceback may still be chained to it.
        is_victims: True if one of its exceptions is about a lost peer.
        is_interrupt: True if one of its exceptions is a KeyboardInterrupt.
        exception: name of the last exception; for argparse the message.
        text: first line of the last exception's text, with its name; "" for argparse.

    """

    def __init__(self, of_usage: bool = False) -> None:
        self.of_usage = of_usage
        self.is_over = False
        self.is_victims = False
        self.is_interrupt = False
        self.exception = self.text = ""
        self._lines: list[bytes] = []

    def add(self, line: bytes) -> None:
        """Add the next line."""
        self._lines.append(line)
        if self.of_usage:
            self.is_over = re.fullmatch(_WRONG_USAGE, line) is not None
            self.exception = line.decode("utf-8", "replace")
            return
        exception = re.fullmatch(_EXCEPTION, line)
        self.is_over = exception is not None
        if exception is not None:
            name, text = exception[1].decode(), line.decode("utf-8", "replace")
            self.exception, self.text = name, text
            self.is_victims = self.is_victims or is_of_lost_peer(name, text)
            self.is_interrupt = self.is_interrupt or name == KeyboardInterrupt.__name__

    @property
    def frames(self) -> list[tuple[str, bytes]]:
        """(file, whole line in the traceback) of each call."""
        found = (match for line in self._lines if (match := re.fullmatch(_FRAME, line)))
        return [(match[1].decode("utf-8", "replace"), match[0]) for match in found]


def find_tracebacks(data: bytes) -> list[Traceback]:
    """Return the tracebacks in the whole lines of a text; colours are ignored."""
    found: list[Traceback] = []
    chained = False
    for line in remove_colours(data[: data.rfind(b"\n") + 1]).split(b"\n"):
        last = found[-1] if found else None
        if line in _CHAINS:
            chained = True
        elif line == _START:
            if not chained or last is None:
                found.append(Traceback())
            else:
                last.is_over = False
            chained = False
        elif line.startswith(_USAGE):
            found.append(Traceback(of_usage=True))
        elif last is not None and not last.is_over:
            last.add(line)
    return found

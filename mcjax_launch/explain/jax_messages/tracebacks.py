"""Parser of Python's tracebacks in a rank's output, which recognizes a victim's; pure.

An argparse message about a wrong command line counts as a traceback without calls.
"""

import re

from mcjax_launch.explain.jax_messages.lost_peer import is_of_lost_peer
from mcjax_launch.journal.colours import remove_colours

#: The first line of each traceback.
START = b"Traceback (most recent call last):"
# The beginning of all lines of an exception group's traceback.
_GROUP = b" {2,40}[|+]"
#: Lines between two tracebacks: the second exception was raised because of the first.
CHAINS = (
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
        count: number of its exceptions so far.
        exception: name of the last exception; for argparse the message.
        text: first line of the last exception's text, with its name; "" for argparse.

    """

    def __init__(self, of_usage: bool = False) -> None:
        self.of_usage = of_usage
        self.is_over = False
        self.is_victims = False
        self.is_interrupt = False
        self.count = 0
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
            self.count += 1
            name, text = exception[1].decode(), line.decode("utf-8", "replace")
            self.exception, self.text = name, text
            self.is_victims = self.is_victims or is_of_lost_peer(name, text)
            self.is_interrupt = self.is_interrupt or name == KeyboardInterrupt.__name__

    @property
    def frames(self) -> list[tuple[str, bytes]]:
        """(file, whole line in the traceback) of each call."""
        found = (match for line in self._lines if (match := re.fullmatch(_FRAME, line)))
        return [(match[1].decode("utf-8", "replace"), match[0]) for match in found]


def find_file(line: bytes) -> str | None:
    """Return the file of a call in a traceback; None if the line names no call."""
    frame = re.fullmatch(_FRAME, line)
    return frame[1].decode("utf-8", "replace") if frame is not None else None


def is_exception(line: bytes) -> bool:
    """Return whether a line of a traceback names the exception."""
    return re.fullmatch(rb"%b|%b" % (_EXCEPTION, _WRONG_USAGE), line) is not None


def is_in_group(line: bytes) -> bool:
    """Return whether a line may belong to an exception group's traceback."""
    return re.match(_GROUP, line) is not None


def may_begin_in(text: bytes) -> bool:
    """Return quickly whether tracebacks may begin in a text."""
    return START in text or _USAGE in text


def begins(line: bytes) -> bool:
    """Return whether a line is the first of a traceback."""
    return line == START or line.startswith(_USAGE)


class Reader:
    """A reader of tracebacks in a text that arrives in pieces; only whole lines count.

    Colours are ignored.

    Args:
        chained: True if the first traceback is chained to a traceback before the text.

    Attributes:
        found: the tracebacks that began in the text, in order.

    """

    def __init__(self, chained: bool = False) -> None:
        self.found: list[Traceback] = []
        self._chained = chained
        self._begun = bytearray()  # the beginning of an incomplete line

    def feed(self, data: bytes) -> None:
        """Read more of the text, which need not end with a line."""
        end = data.rfind(b"\n")
        if end >= 0:
            for line in remove_colours(bytes(self._begun) + data[:end]).split(b"\n"):
                self._add(line)
            self._begun.clear()
        self._begun += data[end + 1 :]

    def _add(self, line: bytes) -> None:
        last = self.found[-1] if self.found else None
        if line in CHAINS:
            self._chained = True
        elif line == START:
            if not self._chained:
                self.found.append(Traceback())
            elif last is not None:
                last.is_over = False
            self._chained = False
        elif line.startswith(_USAGE):
            self.found.append(Traceback(of_usage=True))
        elif last is not None and not last.is_over:
            last.add(line)


def find_tracebacks(data: bytes, chained: bool = False) -> list[Traceback]:
    """Return the tracebacks that begin in the whole lines of `data`; see Reader."""
    reader = Reader(chained)
    reader.feed(data)
    return reader.found

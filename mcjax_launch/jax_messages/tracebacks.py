"""Python's tracebacks in what a rank prints, and which of them are a victim's; pure."""

import re

from mcjax_launch.jax_messages.lost_peer import is_of_lost_peer

#: The first line of each.
START = b"Traceback (most recent call last):"
#: A line between two of them: the second one was raised because of the first.
CHAINS = (
    b"During handling of the above exception, another exception occurred:",
    b"The above exception was the direct cause of the following exception:",
)
# A log's "INFO: text" between the frames is taken for one: then more is shown than need be.
_EXCEPTION = rb"(?:[A-Za-z_]\w*\.)*([A-Za-z_]\w*)(?:: .*)?"
_FRAME = rb'  File "(.*)", line \d+, in .*'


class Traceback:
    """A traceback, with those of the exceptions that led to it or came while it was handled.

    Attributes:
        is_over: its last line has come; it may still turn out to have an effect.

    """

    def __init__(self) -> None:
        self.is_over = False
        self._lines: list[bytes] = []
        self._exceptions: list[tuple[str, bytes]] = []  # names, and the lines with them

    def add(self, line: bytes) -> None:
        """The next line."""
        self._lines.append(line)
        exception = re.fullmatch(_EXCEPTION, line)
        self.is_over = exception is not None
        if exception is not None:
            self._exceptions.append((exception[1].decode(), line))

    @property
    def is_victims(self) -> bool:
        """Whether it is about the loss of a peer, or came of that."""
        return any(
            is_of_lost_peer(name, line.decode("utf-8", "replace"))
            for name, line in self._exceptions
        )

    @property
    def is_interrupt(self) -> bool:
        """Whether it is that of a Ctrl-C."""
        return any(name == KeyboardInterrupt.__name__ for name, _ in self._exceptions)

    @property
    def frames(self) -> list[tuple[str, bytes]]:
        """Of each call: its file, and the line that says so."""
        found = (match for line in self._lines if (match := re.fullmatch(_FRAME, line)))
        return [(match[1].decode("utf-8", "replace"), match[0]) for match in found]


def is_exception(line: bytes) -> bool:
    """Whether a line of a traceback is the one that names the exception."""
    return re.fullmatch(_EXCEPTION, line) is not None


def tracebacks(data: bytes, chained: bool = False) -> list[Traceback]:
    """Those that begin in the whole lines of `data`.

    Args:
        data: maybe with other lines.
        chained: the first goes on with one that began before.

    """
    found: list[Traceback] = []
    last: Traceback | None = None
    for line in data.split(b"\n")[:-1]:
        if line in CHAINS:
            chained = True
        elif line == START:
            if not chained:
                last = Traceback()
                found.append(last)
            elif last is not None:
                last.is_over = False
            chained = False
        elif last is not None and not last.is_over:
            last.add(line)
    return found

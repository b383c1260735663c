"""Whole, prefixed lines out of the raw chunks of many streams; pure: bytes in, pieces out.

`Plain` is for files, pipes and logs: every byte of a rank appears, in lines that nothing else
interrupts. `Live` is for a terminal: unfinished lines (a prompt, a progress bar) stay at the
bottom, one row a stream, and are redrawn in place.
"""

import re
from collections.abc import Callable

#: A longer line is shown in pieces.
LONGEST = 1 << 20
GOES_ON = b" [mcjax-launch: this line goes on]\n"
#: An unfinished line is shown after this many seconds,
MOMENT_S = 0.25
#: its progress on a terminal after so many more,
REDRAW_S = 0.1
#: and in a file, where lines of others come in between, after so many.
AGAIN_S = 2.0


class Source:
    """One stream of one rank. `due` is when its unfinished line wants to be shown, if ever."""

    def __init__(self, prefix: bytes) -> None:
        self.prefix = prefix
        self.partial = bytearray()
        self.due: float | None = None
        self.moment = MOMENT_S
        # Of the partial line, what stands at the end of the output (Plain only).
        self.shown = 0
        self.shown_from_start = True

    @property
    def begun_to_show(self) -> bool:
        """Whether some of the partial line has been shown."""
        return self.shown > 0 or self.moment != MOMENT_S

    def forget(self) -> None:
        """Drop the partial line, nothing of which has been shown."""
        self.partial.clear()
        self.due = None


#: What is to be written, in pieces: a big chunk is copied once, by the prefixing itself.
Pieces = list[bytes | memoryview]


class Plain:
    """Lines for files and pipes."""

    def __init__(self) -> None:
        self._open: Source | None = None  # whose unfinished line ends the output so far

    def feed(self, source: Source, data: bytes, now: float, stamp: bytes = b"") -> Pieces:
        """What to write for more bytes of a stream; `stamp` goes before each line's prefix."""
        end = data.rfind(b"\n") + 1
        out = self._complete(source, data, end, stamp) if end else []
        if end < len(data):
            source.partial += data[end:]
            if source.due is None:
                source.due = now + source.moment
            while len(source.partial) > LONGEST:
                out += self._piece(source, stamp)
        return out

    def expire(self, source: Source, stamp: bytes = b"") -> Pieces:
        """What to write when a source's unfinished line is due."""
        source.due = None
        partial = bytes(source.partial)
        if self._open is source:
            out: Pieces = [partial[source.shown :]]
        elif source.moment == MOMENT_S:  # for the first time
            source.shown_from_start = True
            out = [*self.close(), stamp, source.prefix, partial]
        else:  # others came in between: where it stands now will do until it is complete
            last = partial.rstrip(b"\r").rfind(b"\r") + 1
            source.shown_from_start = last == 0
            out = [*self.close(), stamp, source.prefix, partial[last:]]
        source.shown = len(partial)
        self._open = source
        return out

    def own(self, text: bytes) -> Pieces:
        """What to write for whole lines that are no stream's: the launcher's, or several ranks'."""
        return [*self.close(), text]

    def final(self, line: bytes) -> bytes:
        """What to show of a whole line."""
        return line

    def close(self) -> Pieces:
        """End the line that is open, so that another can begin."""
        if self._open is None:
            return []
        self._open.moment = AGAIN_S
        self._open.shown = 0
        self._open = None
        return [b"\n"]

    def _complete(self, source: Source, data: bytes, end: int, stamp: bytes) -> Pieces:
        """The partial line and `data` up to `end`, which is behind a newline, as whole lines."""
        prefix = stamp + source.prefix
        if self._open is source and source.shown_from_start:
            self._open = None
            out: Pieces = [bytes(source.partial[source.shown :])]
        else:
            out = [*self.close(), prefix, bytes(source.partial)]
        out.append(_with_prefixes(data, end, prefix))
        source.partial.clear()
        source.shown = 0
        source.due = None
        source.moment = MOMENT_S
        return out

    def _piece(self, source: Source, stamp: bytes) -> Pieces:
        rest = bytes(source.partial[LONGEST:])
        del source.partial[LONGEST:]
        out = self._complete(source, GOES_ON, len(GOES_ON), stamp)
        source.partial += rest
        return out


class Live(Plain):
    """Lines for a terminal.

    Args:
        rows: how many rows the terminal has, asked at each redraw.

    """

    def __init__(self, rows: Callable[[], int]) -> None:
        super().__init__()
        self._rows = rows
        self._live: dict[Source, bytes] = {}  # stamp of each stream that has a row
        self._drawn = 0

    def expire(self, source: Source, stamp: bytes = b"") -> Pieces:
        source.due = None
        source.moment = REDRAW_S
        self._live[source] = stamp
        return [self._erase(), self._draw()]

    def own(self, text: bytes) -> Pieces:
        return [self._erase(), text, self._draw()]

    def final(self, line: bytes) -> bytes:
        return visible(line) if b"\r" in line else line

    def _complete(self, source: Source, data: bytes, end: int, stamp: bytes) -> Pieces:
        self._live.pop(source, None)
        prefix = stamp + source.prefix
        data = bytes(source.partial) + data[:end]
        if b"\r" in data:
            data = b"".join(visible(line) + b"\n" for line in data[:-1].split(b"\n"))
        source.partial.clear()
        source.due = None
        source.moment = MOMENT_S
        return [self._erase(), prefix, _with_prefixes(data, len(data), prefix), self._draw()]

    def _erase(self) -> bytes:
        up = self._drawn - 1
        drawn, self._drawn = self._drawn, 0
        if not drawn:
            return b""
        return b"\r" + (b"\x1b[%dA" % up if up else b"") + b"\x1b[J"

    def _draw(self) -> bytes:
        shown = [
            stamp + source.prefix + text
            for source, stamp in self._live.items()
            if (text := _MOVES.sub(b"", visible(source.partial)))
        ]
        most = max(1, self._rows() - 2)
        if len(shown) > most:
            shown[most - 1 :] = [b"(and %d more)" % (len(shown) - most + 1)]
        self._drawn = len(shown)
        # Without automatic wrapping a long row stays one row.
        return b"\x1b[?7l" + b"\x1b[0m\n".join(shown) + b"\x1b[0m\x1b[?7h" if shown else b""


# Escape sequences that would move the cursor out of a row; colours stay.
_MOVES = re.compile(rb"\x1b\[[0-9;?]*[@-ln-~]|\x1b[^\[]|[\x00-\x08\x0b\x0c\x0e-\x1a]")


def visible(line: "bytes | bytearray") -> bytes:
    """What a terminal would show of a line that returns to its start, as a progress bar does."""
    return bytes(line.rstrip(b"\r").rpartition(b"\r")[2]).rstrip()


def _with_prefixes(data: bytes, end: int, prefix: bytes) -> bytes | memoryview:
    """`data` up to `end`, which is behind a newline, with `prefix` after all newlines but the last.

    All of `data` is searched and copied at once, and the end is cut off without another copy.
    """
    if not prefix:
        return memoryview(data)[:end]
    lines = data.replace(b"\n", b"\n" + prefix)
    return memoryview(lines)[: len(lines) - (len(data) - end) - len(prefix)]

"""Merging of identical lines that several ranks print within a moment; pure."""

import math
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from mcjax_launch.console.pieces import Lines, Piece, Stream

#: How long a line waits for the other ranks to print it too.
MOMENT_S = 1.0
# After so many lines in a row without a match, the lines of a stream do not wait, until one has a
# match again. If no other rank has printed anything, one such line is enough.
_UNMATCHED = 3
#: How many lines that did not wait are remembered, to find out whether other ranks print them too.
MOST_RECENT = 256
#: At most so many bytes are held back for all ranks together, the overhead of each line included.
MOST_HELD = 4 << 20
_LINE_TAKES = 500
#: More bytes than this within FLOOD_S are a flood: nobody reads them, so they are shown at once.
FLOOD = 4 << 20
FLOOD_S = 0.5
# A line joins its equals in other ranks behind their earlier lines, and each of those does so too,
# up to this depth.
_MOST_AHEAD = 8


class _HeldLine:
    """Line that waits for equal lines of other ranks.

    Args:
        stream: stream of the rank that has printed it.
        text: the line without the newline.
        stamp: time of day of its arrival.
        due: time at which it must be shown.

    Attributes:
        shown: True if it has been passed on.

    """

    __slots__ = ("due", "shown", "stamp", "stream", "text")

    def __init__(self, stream: Stream, text: bytes, stamp: bytes, due: float) -> None:
        self.stream = stream
        self.text = text
        self.stamp = stamp
        self.due = due
        self.shown = False

    @property
    def key(self) -> tuple[int, bytes]:
        """Key for equal lines: number of the stream, and text."""
        return self.stream.number, self.text


class LineGroup(NamedTuple):
    """Line to show.

    Args:
        text: the line without the newline.
        stamp: time of day of its arrival.
        streams: streams of the ranks that have printed it.

    """

    text: bytes
    stamp: bytes
    streams: list[Stream]

    @property
    def ranks(self) -> list[int]:
        """Ranks that have printed the line."""
        return [stream.rank for stream in self.streams]


class Flood:
    """Detector of floods: output too big to be compared line by line."""

    def __init__(self) -> None:
        self._since = 0.0
        self._bytes = 0
        self._lasts = False

    def rises(self, count: int, now: float) -> bool:
        """Count `count` more bytes; return whether they belong to a flood."""
        if now >= self._since + FLOOD_S:
            self._lasts = self._bytes > FLOOD and now < self._since + 2 * FLOOD_S
            self._since, self._bytes = now, 0
        self._bytes += count
        self._lasts = self._lasts or self._bytes > FLOOD
        return self._lasts


class Collapse:
    """Lines held back until all ranks have printed them, or a moment has passed.

    Each rank's lines keep their order. A line is shown together with its equals in all other ranks;
    what those ranks have printed before is shown first. Lines of a rank that never have a match, as
    when only process 0 prints, do not wait.

    Args:
        ranks: number of ranks that may print.
        stamp: returns the time of day to show before lines that arrive now.

    """

    def __init__(self, ranks: int, stamp: Callable[[], bytes] = lambda: b"") -> None:
        self._all = ranks
        self._stamp = stamp
        self._came: deque[_HeldLine] = deque()  # in order of arrival; may contain shown lines
        self._of_rank: dict[int, deque[_HeldLine]] = {}
        # For each held line, the ranks that have printed it, and how often.
        self._equal: dict[tuple[int, bytes], dict[int, int]] = {}
        self._busy: set[int] = set()  # ranks of which a line is about to be shown
        self._held = 0
        self._flood = Flood()
        self._unmatched: dict[Stream, int] = {}  # lines in a row without a match
        self._recent: dict[tuple[int, bytes], tuple[Stream, float]] = {}

    @property
    def _oldest(self) -> _HeldLine | None:
        """Held line that arrived first, which is the first of its rank; None if none is held."""
        while self._came and self._came[0].shown:
            self._came.popleft()
        return self._came[0] if self._came else None

    @property
    def deadline(self) -> float | None:
        """Time at which the next line has waited long enough; None if no line waits."""
        oldest = self._oldest
        return None if oldest is None else oldest.due

    def feed(self, lines: Lines, now: float) -> list[LineGroup]:
        """Add lines of a rank; return the lines to show now, in order."""
        out: list[LineGroup] = []
        stream, stamp = lines.stream, self._stamp()
        for text in lines.text[:-1].split(b"\n"):
            line = _HeldLine(stream, text, stamp, self._due(stream, text, now))
            self._hold(line)
            if len(self._equal[line.key]) == self._all:  # no rank can join earlier lines any more
                while not line.shown and (oldest := self._oldest) is not None:
                    self._show_first(oldest.stream.rank, out)
            elif line.due <= now:
                while not line.shown:
                    self._show_first(stream.rank, out, now)
            elif self._held > MOST_HELD:
                out += self.flush()
        return out

    def _hold(self, line: _HeldLine) -> None:
        rank = line.stream.rank
        self._came.append(line)
        self._of_rank.setdefault(rank, deque()).append(line)
        ranks = self._equal.setdefault(line.key, {})
        ranks[rank] = ranks.get(rank, 0) + 1
        self._held += len(line.text) + _LINE_TAKES

    def _pop_first(self, rank: int) -> _HeldLine:
        """Remove and return the first held line of a rank."""
        line = self._of_rank[rank].popleft()
        line.shown = True
        ranks = self._equal[line.key]
        ranks[rank] -= 1
        if not ranks[rank]:
            del ranks[rank]
        if not ranks:
            del self._equal[line.key]
        self._held -= len(line.text) + _LINE_TAKES
        return line

    def _show_first(
        self, rank: int, out: list[LineGroup], now: float = -math.inf, depth: int = 0
    ) -> None:
        """Show the first held line of a rank, joined with its equals in other ranks.

        Args:
            rank: the rank.
            out: list to append to: first what the other ranks have printed before their equals.
            now: current time, to count lines that have waited for equals in vain.
            depth: number of lines of other ranks that are shown after this line.

        """
        line = self._pop_first(rank)
        streams = [line.stream]
        self._busy.add(rank)
        for other in self._others_with(line.key) if depth < _MOST_AHEAD else ():
            if other in self._equal.get(line.key, ()):  # else its equal was shown meanwhile
                while self._of_rank[other][0].key != line.key:
                    self._show_first(other, out, now, depth + 1)
                streams.append(self._pop_first(other).stream)
                self._busy.add(other)
        self._busy.difference_update(stream.rank for stream in streams)
        if len(streams) > 1:
            self._unmatched.update(dict.fromkeys(streams, 0))
        elif line.due <= now:
            self._unmatched[line.stream] = self._unmatched.get(line.stream, 0) + 1
        out.append(LineGroup(line.text, line.stamp, streams))

    def _others_with(self, key: tuple[int, bytes]) -> list[int]:
        """Return the ranks that hold an equal line, and none that is about to be shown."""
        return [rank for rank in self._equal.get(key, ()) if rank not in self._busy]

    def _is_alone(self, stream: Stream) -> bool:
        """Return whether other ranks have not printed the recent lines of a stream."""
        others = len(self._of_rank) > 1
        return self._unmatched.get(stream, 0) >= (_UNMATCHED if others else 1)

    def _due(self, stream: Stream, text: bytes, now: float) -> float:
        """Return the time at which to show a line that arrives now."""
        key = stream.number, text
        waiting = self._equal.get(key, {})
        if len(waiting) > (stream.rank in waiting):  # other ranks' equals wait
            return now + MOMENT_S
        before = self._recent.get(key)
        if before is not None and before[0] is not stream and now - before[1] <= MOMENT_S:
            self._unmatched[stream] = self._unmatched[before[0]] = 0
        if not self._is_alone(stream):
            return now + MOMENT_S
        self._recent.pop(key, None)
        self._recent[key] = stream, now
        if len(self._recent) > MOST_RECENT:
            del self._recent[next(iter(self._recent))]
        return now

    def is_too_much(self, lines: Lines, now: float) -> bool:
        """Return whether lines belong to a flood, to be shown at once after `make_way`."""
        return self._flood.rises(len(lines.head) + lines.end, now)

    def make_way(self, piece: Piece) -> list[LineGroup]:
        """Remove and return the lines to show before a piece that cannot wait."""
        return self.flush() if self._of_rank.get(piece.stream.rank) else []

    def expire(self, now: float) -> list[LineGroup]:
        """Remove and return the lines that are due, with earlier lines of their ranks."""
        out: list[LineGroup] = []
        while (oldest := self._oldest) is not None and oldest.due <= now:
            self._show_first(oldest.stream.rank, out, now)
        return out

    def flush(self) -> list[LineGroup]:
        """Remove and return all lines, in order."""
        out: list[LineGroup] = []
        while (oldest := self._oldest) is not None:
            self._show_first(oldest.stream.rank, out)
        return out

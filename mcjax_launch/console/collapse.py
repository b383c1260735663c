"""Merging of identical lines that several ranks print within a moment; pure."""

import heapq
from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Callable, Sequence
from operator import attrgetter

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
# To join an equal line before its rank's last line, a line tries at most _LOOK equal lines, and
# moves at most _MOST_MOVED lines.
_LOOK, _MOST_MOVED = 8, 64
_PLACE = attrgetter("place")
_ROOM = float(1 << 20)


class LineGroup:
    """Line, with the ranks that have printed it.

    Attributes:
        number: number of the line in order of arrival.
        place: sort key; by it, lines of each rank are in the order in which the rank printed them.
        text: the line without the newline.
        stamp: time of day of its arrival.
        due: time at which it must be shown.
        streams: streams of the ranks that have printed it.
        following: next lines of these ranks.
        shown: True if it has been passed on.

    """

    __slots__ = ("due", "following", "number", "place", "shown", "stamp", "streams", "text")

    def __init__(self, number: int, text: bytes, stamp: bytes, due: float, stream: Stream) -> None:
        self.number = number
        self.place = 0.0
        self.text = text
        self.stamp = stamp
        self.due = due
        self.streams = [stream]
        self.following: list[LineGroup] = []
        self.shown = False

    @property
    def ranks(self) -> list[int]:
        """Ranks that have printed the line."""
        return [stream.rank for stream in self.streams]

    @property
    def key(self) -> tuple[int, bytes]:
        """Key for equal lines: number of the stream, and text."""
        return self.streams[0].number, self.text


class Flood:
    """Detector of floods: output too big to be compared line by line."""

    def __init__(self) -> None:
        self._since = 0.0
        self._bytes = 0
        self._lasts = False

    def detect(self, count: int, now: float) -> bool:
        """Count `count` more bytes; return whether they belong to a flood."""
        if now >= self._since + FLOOD_S:
            self._lasts = self._bytes > FLOOD and now < self._since + 2 * FLOOD_S
            self._since, self._bytes = now, 0
        self._bytes += count
        self._lasts = self._lasts or self._bytes > FLOOD
        return self._lasts


class Collapse:
    """Queue of lines held back until all ranks have printed them, or a moment has passed.

    The queue keeps each rank's order. A line joins an equal line behind the rank's last line, or
    an equal line that can be moved there. Otherwise, it is put directly behind the rank's
    last line, so that the rank's next lines can still join all lines behind it. Lines of a rank
    that never have a match, as when only process 0 prints, do not wait.

    Args:
        ranks: number of ranks that may print.
        stamp: returns the time of day to show before lines that arrive now.

    """

    def __init__(self, ranks: int, stamp: Callable[[], bytes] = lambda: b"") -> None:
        self._all = ranks
        self._stamp = stamp
        self._came: deque[LineGroup] = deque()
        self._row: list[LineGroup] = []
        self._equal: dict[tuple[int, bytes], list[LineGroup]] = {}  # in their order in the row
        self._last: dict[int, LineGroup] = {}
        self._held = 0
        self._next = 0
        self._flood = Flood()
        self._unmatched: dict[Stream, int] = {}  # lines in a row without a match
        self._recent: dict[tuple[int, bytes], tuple[Stream, float]] = {}

    @property
    def deadline(self) -> float | None:
        """Time at which the next line has waited long enough; None if no line waits."""
        while self._came and self._came[0].shown:
            self._came.popleft()
        return self._came[0].due if self._came else None

    def feed(self, lines: Lines, now: float) -> list[LineGroup]:
        """Add lines of a rank; return the lines to show now, in order."""
        out: list[LineGroup] = []
        stamp = self._stamp()
        for text in lines.text[:-1].split(b"\n"):
            group = self._add(lines.stream, text, stamp, now)
            if len(group.streams) == self._all:  # no rank can join those before it any more
                out += self._pop(self._row[: bisect_right(self._row, group.place, key=_PLACE)])
            elif group.due <= now:
                out += self._pop_due(now)
            elif self._held > MOST_HELD:
                out += self.flush()
        return out

    def _is_alone(self, stream: Stream) -> bool:
        """Return whether other ranks have not printed the recent lines of a stream."""
        others = len(self._last) > 1
        return self._unmatched.get(stream, 0) >= (_UNMATCHED if others else 1)

    def _compute_due(self, stream: Stream, key: tuple[int, bytes], now: float) -> float:
        """Return the time at which to show a line that equals no waiting line."""
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

    def _add(self, stream: Stream, text: bytes, stamp: bytes, now: float) -> LineGroup:
        """Add a line to the queue, or its rank to an equal line; return the line's group."""
        last = self._find_last_waiting(stream.rank)
        equal = self._equal.setdefault((stream.number, text), [])
        at = 0 if last is None else bisect_right(equal, last.place, key=_PLACE)
        group = equal[at] if at < len(equal) else self._move_equal(equal, stream.rank, last)
        if group is not None:
            group.streams.append(stream)
            self._unmatched.update(dict.fromkeys(group.streams, 0))
        else:
            due = self._compute_due(stream, (stream.number, text), now)
            group = LineGroup(self._next, text, stamp, due, stream)
            self._put(group, last)
            insort(equal, group, key=_PLACE)
            self._came.append(group)
            self._next += 1
            self._held += len(text) + _LINE_TAKES
        if last is not None and group not in last.following[-1:]:
            last.following.append(group)
        self._last[stream.rank] = group
        return group

    def _move_equal(
        self, equal: list[LineGroup], rank: int, last: LineGroup | None
    ) -> LineGroup | None:
        """Move an equal line from before a rank's last line to behind it, and return it.

        Returns:
            None if no equal line can be moved.

        """
        if last is None:
            return None
        found: list[LineGroup] = []
        for group in reversed(equal[-_LOOK:]):
            if rank in group.ranks:
                break
            found.append(group)
        return next((group for group in reversed(found) if self._move(group, last)), None)

    def _move(self, group: LineGroup, last: LineGroup) -> bool:
        """Move a line behind `last` if each rank's order allows that; return True if moved."""
        moved, ahead = {group}, [group]
        while ahead:
            for following in ahead.pop().following:
                if following is last or len(moved) > _MOST_MOVED:
                    return False
                if following.place < last.place and following not in moved:
                    moved.add(following)
                    ahead.append(following)
        in_order = sorted(moved, key=_PLACE)
        for each in in_order:
            _remove(each, self._row)
            _remove(each, self._equal[each.key])
        for each in in_order:
            self._put(each, last)
            insort(self._equal[each.key], each, key=_PLACE)
            last = each
        return True

    def _find_last_waiting(self, rank: int) -> LineGroup | None:
        last = self._last.get(rank)
        return None if last is None or last.shown else last

    def is_too_much(self, lines: Lines, now: float) -> bool:
        """Return whether lines belong to a flood, to be shown at once after `flush_before`."""
        return self._flood.detect(len(lines.head) + lines.end, now)

    def flush_before(self, piece: Piece) -> list[LineGroup]:
        """Remove and return the lines to show before a piece that cannot wait."""
        return self.flush() if self._find_last_waiting(piece.stream.rank) is not None else []

    def _put(self, group: LineGroup, last: LineGroup | None) -> None:
        """Insert a line into the queue, directly behind `last`, or at the front for None."""
        row = self._row
        at = 0 if last is None else bisect_right(row, last.place, key=_PLACE)
        low = row[at - 1].place if at else None
        high = row[at].place if at < len(row) else None
        if low is None:
            group.place = 0.0 if high is None else high - _ROOM
        else:
            group.place = low + 1 if high is None or low + 1 < high else (low + high) / 2
        row.insert(at, group)
        if group.place in (low, high):  # there was no room left between them
            for place, each in enumerate(row):
                each.place = place * _ROOM

    def expire(self, now: float) -> list[LineGroup]:
        """Remove and return the lines that are due, with earlier lines of their ranks."""
        if self.deadline is None or self._came[0].due > now:
            return []
        return self._pop_due(now)

    def _pop_due(self, now: float) -> list[LineGroup]:
        taken: list[LineGroup] = []
        needed: set[int] = set()
        for group in reversed(self._row):
            if group.due <= now or not needed.isdisjoint(group.ranks):
                needed.update(group.ranks)
                taken.append(group)
                if len(group.streams) == 1 and group.due <= now:
                    stream = group.streams[0]
                    self._unmatched[stream] = self._unmatched.get(stream, 0) + 1
        return self._pop(taken[::-1])

    def flush(self) -> list[LineGroup]:
        """Remove all lines from the queue, and return them in order."""
        return self._pop(list(self._row))

    def _pop(self, groups: list[LineGroup]) -> list[LineGroup]:
        """Remove lines from the queue, and return them in order."""
        for group in groups:
            group.shown = True
            equal = self._equal[group.key]
            _remove(group, equal)
            if not equal:
                del self._equal[group.key]
            self._held -= len(group.text) + _LINE_TAKES
        if groups and groups[-1] is self._row[len(groups) - 1]:
            del self._row[: len(groups)]
        else:
            self._row = [group for group in self._row if not group.shown]
        return sort_by_arrival(groups)


def _remove(group: LineGroup, groups: list[LineGroup]) -> None:
    """Remove a line from a list that is sorted by place."""
    del groups[bisect_left(groups, group.place, key=_PLACE)]


def sort_by_arrival(groups: Sequence[LineGroup]) -> list[LineGroup]:
    """Return lines in order of arrival, as far as each rank's own order allows that.

    Args:
        groups: lines, in an order that keeps each rank's own order.

    """
    after: list[list[int]] = [[] for _ in groups]
    missing = [0] * len(groups)
    last: dict[int, int] = {}
    for at, group in enumerate(groups):
        for rank in group.ranks:
            if rank in last:
                after[last[rank]].append(at)
                missing[at] += 1
            last[rank] = at
    ready = [(group.number, at) for at, group in enumerate(groups) if not missing[at]]
    heapq.heapify(ready)
    out: list[LineGroup] = []
    while ready:
        _, at = heapq.heappop(ready)
        out.append(groups[at])
        for following in after[at]:
            missing[following] -= 1
            if not missing[following]:
                heapq.heappush(ready, (groups[following].number, following))
    return out

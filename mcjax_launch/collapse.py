"""Identical lines that several ranks print within a moment, shown once; pure."""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter

#: How long a line waits for the other ranks to print it too.
MOMENT_S = 0.2
#: More than this is not held back, all ranks together,
MOST_HELD = 1 << 20
# each line counted with what it takes to hold it.
_LINE_TAKES = 500


@dataclass(slots=True)
class Group:
    """A line, and the ranks that have printed it."""

    number: int  # in the order in which they will be shown
    stream: int
    text: bytes
    stamp: bytes
    due: float
    ranks: list[int]


class Collapse:
    """Holds lines back until all ranks have printed them, or a moment has passed.

    The lines wait in one queue, and a rank's line joins an equal one only if that stands behind
    all others of this rank: so each rank's lines keep their order.

    Args:
        ranks: how many there are that may print.

    """

    def __init__(self, ranks: int) -> None:
        self._all = ranks
        self._queue: deque[Group] = deque()
        self._equal: dict[tuple[int, bytes], list[Group]] = {}
        self._last: dict[int, int] = {}  # of each rank's lines, the number
        self._held = 0
        self._next = 0

    @property
    def due(self) -> float | None:
        """When the next line has waited long enough."""
        return self._queue[0].due if self._queue else None

    def feed(
        self, rank: int, stream: int, lines: Iterable[bytes], now: float, stamp: bytes
    ) -> list[Group]:
        """More whole lines of a rank, without their newlines; what can be shown now."""
        out: list[Group] = []
        for text in lines:
            equal = self._equal.setdefault((stream, text), [])
            at = bisect_right(equal, self._last.get(rank, -1), key=_NUMBER)
            if at < len(equal):
                group = equal[at]
                group.ranks.append(rank)
            else:
                group = Group(self._next, stream, text, stamp, now + MOMENT_S, [rank])
                equal.append(group)
                self._queue.append(group)
                self._next += 1
                self._held += len(text) + _LINE_TAKES
            self._last[rank] = group.number
            if len(group.ranks) == self._all:  # no rank can join those before it any more
                out += self._take(group.number)
            elif self._held > MOST_HELD:
                out += self.flush()
        return out

    def expire(self, now: float) -> list[Group]:
        """The lines that have waited long enough."""
        out: list[Group] = []
        while self._queue and self._queue[0].due <= now:
            out += self._take(self._queue[0].number)
        return out

    def flush(self) -> list[Group]:
        """All lines that wait."""
        return self._take(self._next)

    def _take(self, last: int) -> list[Group]:
        out: list[Group] = []
        while self._queue and self._queue[0].number <= last:
            group = self._queue.popleft()
            equal = self._equal[group.stream, group.text]
            del equal[0]
            if not equal:
                del self._equal[group.stream, group.text]
            self._held -= len(group.text) + _LINE_TAKES
            out.append(group)
        return out


_NUMBER = attrgetter("number")


def ranges(ranks: Sequence[int]) -> str:
    """Ranks in words, as `0-2,5`."""
    parts: list[list[int]] = []
    for rank in sorted(ranks):
        if parts and parts[-1][-1] == rank - 1:
            parts[-1][1:] = [rank]
        else:
            parts.append([rank])
    return ",".join("-".join(map(str, part)) for part in parts)

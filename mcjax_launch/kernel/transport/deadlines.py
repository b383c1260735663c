"""A priority queue of movable deadlines; pure."""

from collections.abc import Callable, Iterator
from heapq import heappop, heappush, heapreplace
from math import inf
from typing import Generic, TypeVar

T = TypeVar("T")


class Deadlines(Generic[T]):
    """Finds the earliest deadline of many items without asking each.

    It keeps a lower bound for each item. A deadline that has moved back is noticed only when its
    bound comes first; one that comes nearer has to be noted.

    Args:
        at: the deadline of an item as it is now; inf for none.

    """

    def __init__(self, at: Callable[[T], float]) -> None:
        self._at = at
        self._heap: list[tuple[float, int, T]] = []
        self._known: dict[T, float] = {}  # the one time of an item in the heap that counts
        self._count = 0  # of two items at the same time the earlier one comes first

    def note(self, item: T) -> None:
        """The deadline of an item may have come nearer."""
        at = self._at(item)
        if at < self._known.get(item, inf):
            self._known[item] = at
            self._count += 1
            heappush(self._heap, (at, self._count, item))

    @property
    def first(self) -> float:
        """The earliest deadline; inf if there is none."""
        while self._heap:
            known, count, item = self._heap[0]
            at = self._at(item)
            if self._known.get(item) != known:
                heappop(self._heap)
            elif at == known:
                return at
            elif at < inf:
                self._known[item] = at
                heapreplace(self._heap, (at, count, item))
            else:
                del self._known[item]
                heappop(self._heap)
        return inf

    def take(self, now: float) -> Iterator[T]:
        """Each item whose deadline has come; what is done with it has to move its deadline."""
        due = []
        while self.first <= now:
            _, _, item = heappop(self._heap)
            del self._known[item]
            due.append(item)
        for item in due:
            if self._at(item) <= now:  # what was done with another may have settled this one
                yield item
            self.note(item)

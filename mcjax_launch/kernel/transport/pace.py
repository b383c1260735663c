"""Which host's transport is started next, and which deadline comes first; pure."""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from heapq import heappop, heappush, heapreplace
from math import inf
from typing import Generic, TypeVar

from mcjax_launch.job.hosts import Host

# --- a priority queue of movable deadlines ---

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


# --- which transport is started next ---

# sshd refuses connections at random when ten are being set up (MaxStartups 10:30:100), and many
# hosts may be one sshd: begin below that, grow while all goes well, halve when one is refused.
_FIRST_LIMIT = 8
_MOST_LIMIT = 64
_MOST_ATTEMPTS = 7


class Pace:
    """The hosts that are still to be started.

    Times are seconds of any steady clock.

    Args:
        hosts: all of them, in order.

    """

    def __init__(self, hosts: Iterable[Host]) -> None:
        self._waiting = deque(hosts)  # for their turn
        self._again: list[tuple[float, Host]] = []  # those that are tried again, and when
        self._attempts: Counter[Host] = Counter()
        self._limit = _FIRST_LIMIT

    def next(self, under_way: int, now: float) -> Host | None:
        """The host to be started now, if any, while so many are being set up."""
        if self._again:
            self._waiting += [host for at, host in self._again if at <= now]
            self._again = [(at, host) for at, host in self._again if at > now]
        if not self._waiting or under_way >= self._limit:
            return None
        host = self._waiting.popleft()
        self._attempts[host] += 1
        return host

    def add(self, host: Host) -> None:
        """One more is to be started, or one once more."""
        self._waiting.append(host)

    def went_well(self) -> None:
        """An agent has greeted: more may be set up at a time."""
        self._limit = min(self._limit + 1, _MOST_LIMIT)

    def refused(self, host: Host, now: float) -> bool:
        """A host may have had too much to do; whether it is tried again, after a pause."""
        attempts = self._attempts[host]
        if attempts >= _MOST_ATTEMPTS:
            return False
        import random

        self._limit = max(2, self._limit // 2)
        self._again.append((now + 0.1 * 2**attempts * random.uniform(0.5, 1.5), host))
        return True

    def stop(self) -> None:
        """Start no more."""
        self._waiting.clear()
        self._again.clear()

    @property
    def over(self) -> bool:
        """Whether none is to be started any more."""
        return not self._waiting and not self._again

    def deadline(self, under_way: int) -> float:
        """When to ask for the next one; inf while only a greeting can change anything."""
        if not self._again or under_way >= self._limit:
            return inf
        return min(at for at, _ in self._again)

"""Which host's transport is started next, and how many are set up at a time; pure."""

from collections import Counter, deque
from collections.abc import Iterable
from math import inf

from mcjax_launch.job.hosts import Host

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

"""Order and rate in which transports are started; without effects."""

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
    """Queue of the hosts whose transports are to be started, with a limit on concurrent starts.

    Times are seconds of any steady clock.

    Args:
        hosts: hosts to start, in this order.

    """

    def __init__(self, hosts: Iterable[Host]) -> None:
        self._waiting = deque(hosts)  # to be started as soon as the limit allows
        self._again: list[tuple[float, Host]] = []  # to be tried again, and when
        self._attempts: Counter[Host] = Counter()
        self._limit = _FIRST_LIMIT

    def pop_host(self, under_way: int, now: float) -> Host | None:
        """Return the host to start now; None if none is due or the limit is reached.

        Args:
            under_way: number of hosts that were started and have not greeted yet.
            now: current time.

        """
        if self._again:
            self._waiting += [host for at, host in self._again if at <= now]
            self._again = [(at, host) for at, host in self._again if at > now]
        if not self._waiting or under_way >= self._limit:
            return None
        host = self._waiting.popleft()
        self._attempts[host] += 1
        return host

    def increase_limit(self) -> None:
        """Raise the limit on concurrent starts, because an agent has greeted."""
        self._limit = min(self._limit + 1, _MOST_LIMIT)

    def retry_later(self, host: Host, now: float) -> bool:
        """Lower the limit because a host refused, and queue the host again.

        The pause before the next attempt grows with each attempt. Return False, and change
        nothing, after too many attempts.
        """
        attempts = self._attempts[host]
        if attempts >= _MOST_ATTEMPTS:
            return False
        import random

        self._limit = max(2, self._limit // 2)
        self._again.append((now + 0.1 * 2**attempts * random.uniform(0.5, 1.5), host))
        return True

    def stop(self) -> None:
        """Empty the queue, so that no more hosts are started."""
        self._waiting.clear()
        self._again.clear()

    @property
    def over(self) -> bool:
        """True if no host is left to start."""
        return not self._waiting and not self._again

    def compute_deadline(self, under_way: int) -> float:
        """Return the time to call `pop_host` again; inf if only a greeting allows another start."""
        if not self._again or under_way >= self._limit:
            return inf
        return min(at for at, _ in self._again)

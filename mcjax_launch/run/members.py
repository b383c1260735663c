"""Which ranks the processes of a program are, by the numbers that their backends give them; pure.

`jax.process_index()` is a backend's number. On TPUs it is libtpu's, and not that of initialize().
Nothing is judged before it is known of all of a program's processes which ranks they are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping

from mcjax_launch.kernel.wire.value import Value


class _Event(Value):
    """What is to be done once it is known which ranks these processes are."""

    platform: str
    processes: tuple[int, ...]
    act: Callable[[], object]
    at: float


class ProcessRanks:
    """The rank of each process, and what waits until more of them are known, in its order."""

    def __init__(self) -> None:
        self._ranks: dict[str, dict[int, int]] = {}  # by platform and process
        self._waiting: deque[_Event] = deque()

    def told(self, rank: int, platform: str, process: int) -> None:
        """A rank is this process, by the number of its backend for this platform."""
        ranks = self._ranks.setdefault(platform, {})
        for before in [number for number, known in ranks.items() if known == rank]:
            del ranks[before]
        ranks[process] = rank

    def ranks(self, platform: str) -> Mapping[int, int]:
        """The rank of each process of which it is known."""
        return self._ranks.get(platform, {})

    @property
    def waits_since(self) -> float | None:
        """Since when the first of what waits has; None where nothing does."""
        return self._waiting[0].at if self._waiting else None

    def when_known(
        self, platform: str, processes: Collection[int], act: Callable[[], object], at: float
    ) -> None:
        """Have something done once these processes are known, and after all that came before.

        Args:
            platform: whose backend has numbered them.
            processes: their numbers.
            act: is called when `settle` finds that it may be.
            at: now.

        """
        self._waiting.append(_Event(platform, tuple(processes), act, at))

    def settle(self, may_tell: Callable[[], Collection[int]]) -> None:
        """Do what need not wait any longer.

        Args:
            may_tell: gives the ranks that may still say which processes they are.

        """
        while self._waiting:
            event = self._waiting[0]
            known = self.ranks(event.platform)
            are_known = known.keys() >= set(event.processes)
            if not are_known and set(may_tell()).difference(known.values()):
                return
            self._waiting.popleft()
            event.act()

    def others(self, ranks: Collection[int]) -> Mapping[int, int]:
        """The rank of each process where they differ, and it is known of all of these ranks."""
        for known in self._ranks.values():
            if set(known.values()) >= set(ranks) and any(n != rank for n, rank in known.items()):
                return known
        return {}

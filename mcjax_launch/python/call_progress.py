"""Progress of a call in the ranks that make it, and reasons to wait no longer; pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum, auto

from mcjax_launch.python.values import Answer
from mcjax_launch.wire.timers import scale_time

# How long the other ranks get when a rank has failed, before the launcher is asked whether they
# wait: they may fail too. All do the same work, so after a late failure they get more time.
_GRACE_S = scale_time(1.0)
_GRACE_SHARE = 0.5
_MOST_GRACE_S = scale_time(5.0)
#: How long ranks may take to react to an interrupt.
INTERRUPT_S = scale_time(3.0)


def compute_grace_s(passed_s: float) -> float:
    """Return the seconds that other ranks get when a rank fails after some seconds of a call."""
    return min(_GRACE_S + _GRACE_SHARE * passed_s, _MOST_GRACE_S)


class Due(Enum):
    """Actions that may be due while ranks have not answered."""

    NOTHING = auto()
    ASK = auto()  # the launcher, which ranks wait for others
    GIVE_UP = auto()  # the ranks, which wait for a failed one or do not react to the interrupt


class CallProgress:
    """Progress of a call.

    Times are in time.monotonic's seconds.

    Args:
        ranks: ranks that make the call.
        now: the time.
        number: number of the call.

    Attributes:
        ranks: ranks that make the call.
        number: number of the call.
        answers: what ranks have returned.
        places: where ranks wait for others in JAX, in words, when all unfinished ranks do; else ().

    """

    def __init__(self, ranks: Iterable[int], now: float, number: int) -> None:
        self.ranks = frozenset(ranks)
        self.number = number
        self.answers: dict[int, Answer] = {}
        self.places: tuple[str, ...] = ()
        self._began = now
        self._ask_at: float | None = None
        self._give_up_at: float | None = None

    @property
    def failed(self) -> list[int]:
        """Ranks that have raised an exception, in ascending order."""
        return sorted(rank for rank, answer in self.answers.items() if answer.told.kind == "raised")

    @property
    def running(self) -> list[int]:
        """Ranks that have not answered, in ascending order."""
        return sorted(self.ranks - self.answers.keys())

    def record_answer(self, rank: int, answer: Answer, now: float) -> None:
        """Record what a rank has returned."""
        self.answers[rank] = answer
        if self.failed:
            self._ask_at = now + compute_grace_s(now - self._began)

    def record_interrupt(self, now: float) -> None:
        """Record that the ranks have been interrupted."""
        if self._give_up_at is None:
            self._give_up_at = now + INTERRUPT_S

    def record_absence(self, number: int) -> None:
        """Record that the ranks have not got the call with this number."""
        if number == self.number:
            self.ranks = frozenset()

    def record_waiting(self, ranks: Iterable[int], places: Sequence[str]) -> None:
        """Record the ranks that wait for others in JAX, and where."""
        if set(self.running) <= set(ranks):
            self.places = tuple(places)

    def compute_wait_s(self, now: float) -> float | None:
        """Return the seconds until something may be due; None if only an answer is awaited."""
        times = [at for at in (self._ask_at, self._give_up_at) if at is not None]
        return max(0.0, min(times) - now) if times else None

    def pop_due(self, now: float) -> Due:
        """Return what is due; a question is due again later."""
        if self.places or (self._give_up_at is not None and now >= self._give_up_at):
            return Due.GIVE_UP
        if self._ask_at is not None and now >= self._ask_at:
            self._ask_at = now + _MOST_GRACE_S
            return Due.ASK
        return Due.NOTHING

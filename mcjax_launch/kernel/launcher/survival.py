"""Whether the others outlive a rank that fails, and when it is started again: events -> decisions.

That is for --on-rank-failure; how a job ends is `stop_policy`'s.
"""

from __future__ import annotations

from collections.abc import Iterable

from mcjax_launch.kernel.launcher.part import pause_s
from mcjax_launch.kernel.wire.value import Value
from mcjax_launch.ranks import counted, these_ranks
from mcjax_launch.runs.stop_reasons import NO_SERVICE

_RECOVERABILITY = 'jax.config.update("jax_enable_recoverability", True)'
# All ranks together may be started again so many times as often as one.
_OF_ALL = 4


class Loss(Value):
    """A rank has failed, or is lost.

    Args:
        rank: which one.
        joined: its program has called initialize(), and has not left the job since.
        serves: it has done so as process 0.
        recoverable: it had asked JAX for processes that outlive one another.
        awaited: others are in initialize(), and cannot come through without it.
        unserved: it has called initialize(), and process 0 has ended.

    """

    rank: int
    joined: bool = False
    serves: bool = False
    recoverable: bool = False
    awaited: bool = False
    unserved: bool = False


class GoOn(Value):
    """The others go on without this rank."""

    rank: int


class BeginAgain(Value):
    """A rank is to be started again: say so.

    Args:
        rank: which one.
        pause_s: between its end and its next start, in seconds.
        number: of its next life, from 1.
        most: so many may follow its first one.

    """

    rank: int
    pause_s: float
    number: int
    most: int


class EndAll(Value):
    """The job ends for this failure, as it would without the option; `why`."""

    why: str


Effect = GoOn | BeginAgain | EndAll


class SurvivalPolicy:
    """What the failure of a rank does to it and to the others, in one run of a job.

    Times (`now`, `deadline`) are seconds of any steady clock.

    Args:
        on_rank_failure: the option, "continue" or "restart:N".

    Attributes:
        restarts: ranks that fail are started again.

    """

    def __init__(self, on_rank_failure: str) -> None:
        how, _, most = on_rank_failure.partition(":")
        self.restarts = how == "restart"
        self._most = int(most or 0)
        self._begun: dict[int, int] = {}  # how many further lives a rank has had, or is to have
        self._open: set[int] = set()  # have failed: what becomes of them is decided
        self._due: dict[int, float] = {}  # when a rank is started again

    def failed(self, loss: Loss) -> Effect | None:
        """A rank has failed, whether its process has ended already or not: what is to be done.

        None where that is known already.
        """
        rank = loss.rank
        if rank in self._open:
            return None
        if why := self._why_not(loss):
            return EndAll(why)
        self._open.add(rank)
        if not self.restarts:
            return GoOn(rank)
        number = self._begun[rank] = self._begun.get(rank, 0) + 1
        return BeginAgain(rank, pause_s(number - 1), number, self._most)

    def goes_on(self, rank: int) -> bool:
        """Whether the job has outlived the failure of a rank."""
        return rank in self._open

    def ended(self, rank: int, now: float) -> None:
        """The process of a rank has ended."""
        if self.restarts and rank in self._open:
            self._due[rank] = now + pause_s(self._begun[rank] - 1)

    def host_lost(self, ranks: Iterable[int]) -> list[int]:
        """The host of these is lost: those that were about to be started again there."""
        return [rank for rank in ranks if self._due.pop(rank, None) is not None]

    def begins(self, rank: int) -> int:
        """A rank is started again now: the number of that life."""
        self._open.discard(rank)
        return self._begun[rank]

    def called(self, absent: list[int]) -> str:
        """A rank calls initialize(), and these have failed before they could.

        Why the job ends for that; "" if it does not.
        """
        if self.restarts or not absent:
            return ""
        return f"{these_ranks(absent)} failed before initialize(), where others wait"

    @property
    def deadline(self) -> float | None:
        """When to call `expire` next."""
        return min(self._due.values(), default=None)

    def expire(self, now: float) -> dict[int, int]:
        """The ranks to be started again now, each with the number of that life."""
        due = [rank for rank, at in self._due.items() if now >= at]
        for rank in due:
            del self._due[rank]
        return {rank: self.begins(rank) for rank in due}

    def _why_not(self, loss: Loss) -> str:
        """Why the job cannot go on; "" if it can."""
        if loss.serves:
            return "process 0 holds JAX's coordination service, without which no other can go on"
        if loss.unserved and (loss.joined or self.restarts):
            return NO_SERVICE
        if loss.joined and not loss.recoverable:
            return f"the program has not asked for that: {_RECOVERABILITY} before initialize()"
        if not self.restarts:
            return "it failed before initialize(), where others wait for it" if loss.awaited else ""
        if self._begun.get(loss.rank, 0) >= self._most:
            return f"it has been started again {counted(self._most, 'time')} already"
        if sum(self._begun.values()) >= _OF_ALL * self._most:
            again = counted(_OF_ALL * self._most, "time")
            return f"the ranks have been started again {again} in all already"
        return ""

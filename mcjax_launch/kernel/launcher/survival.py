"""Decisions on whether other ranks go on after a failure, and on restarts: events -> decisions.

They are for --on-rank-failure; how a job ends is decided in `stop_policy`.
"""

from __future__ import annotations

from collections.abc import Iterable

from mcjax_launch.kernel.launcher.part import pause_s
from mcjax_launch.kernel.wire.value import Value
from mcjax_launch.ranks import counted, these_ranks
from mcjax_launch.runs.stop_reasons import NO_SERVICE

_RECOVERABILITY = 'jax.config.update("jax_enable_recoverability", True)'
# All ranks together may be restarted this many times as often as a single rank.
_OF_ALL = 4


class FailedRank(Value):
    """Failure or loss of a rank.

    Args:
        rank: the rank.
        joined: its program has called initialize(), and has not left the job since.
        serves: it has done so as process 0, which runs JAX's coordination service.
        recoverable: its program had asked JAX to survive failures of other processes.
        awaited: other ranks are in initialize(), and cannot complete it without this rank.
        unserved: it has called initialize(), and process 0 has ended.

    """

    rank: int
    joined: bool = False
    serves: bool = False
    recoverable: bool = False
    awaited: bool = False
    unserved: bool = False


class GoOn(Value):
    """Decision that the other ranks go on without this rank."""

    rank: int


class BeginAgain(Value):
    """Decision to restart a rank, and to say so.

    Args:
        rank: the rank.
        pause_s: seconds between its end and its restart.
        number: the number of its restart, from 1.
        most: the most restarts of a rank.

    """

    rank: int
    pause_s: float
    number: int
    most: int


class EndAll(Value):
    """Decision that the job ends for this failure, as without the option, and why."""

    why: str


Effect = GoOn | BeginAgain | EndAll


class SurvivalPolicy:
    """Policy on what follows from the failure of a rank, in an attempt.

    Times (`now`, `deadline`) are seconds of any steady clock.

    Args:
        on_rank_failure: the option, "continue" or "restart:N".

    Attributes:
        restarts: failed ranks are restarted.

    """

    def __init__(self, on_rank_failure: str) -> None:
        how, _, most = on_rank_failure.partition(":")
        self.restarts = how == "restart"
        self._most = int(most or 0)
        self._begun: dict[int, int] = {}  # restarts of each rank, begun or decided
        self._open: set[int] = set()  # failed ranks about which a decision was made
        self._due: dict[int, float] = {}  # when a rank is restarted

    def failed(self, failed: FailedRank) -> Effect | None:
        """Decide what follows a rank's failure; return None if that is already decided.

        The caller may report a failure before the rank's process ends, and again afterwards.
        """
        rank = failed.rank
        if rank in self._open:
            return None
        if why := self._why_not(failed):
            return EndAll(why)
        self._open.add(rank)
        if not self.restarts:
            return GoOn(rank)
        number = self._begun[rank] = self._begun.get(rank, 0) + 1
        return BeginAgain(rank, pause_s(number - 1), number, self._most)

    def goes_on(self, rank: int) -> bool:
        """Return whether the job goes on after the failure of a rank."""
        return rank in self._open

    def ended(self, rank: int, now: float) -> None:
        """Record that the process of a rank has ended."""
        if self.restarts and rank in self._open:
            self._due[rank] = now + pause_s(self._begun[rank] - 1)

    def host_lost(self, ranks: Iterable[int]) -> list[int]:
        """Record that these ranks' host is lost; return those about to be restarted there."""
        return [rank for rank in ranks if self._due.pop(rank, None) is not None]

    def begins(self, rank: int) -> int:
        """Record that a rank is restarted now; return the number of the restart."""
        self._open.discard(rank)
        return self._begun[rank]

    def called(self, absent: list[int]) -> str:
        """Return why the job ends if a rank calls initialize() now; "" if it goes on.

        Args:
            absent: ranks that have failed before they called initialize().

        """
        if self.restarts or not absent:
            return ""
        return f"{these_ranks(absent)} failed before initialize(), where others wait"

    @property
    def deadline(self) -> float | None:
        """Time at which to call `expire` next."""
        return min(self._due.values(), default=None)

    def expire(self, now: float) -> dict[int, int]:
        """Return the ranks to restart now, each with the number of its restart."""
        due = [rank for rank, at in self._due.items() if now >= at]
        for rank in due:
            del self._due[rank]
        return {rank: self.begins(rank) for rank in due}

    def _why_not(self, failed: FailedRank) -> str:
        """Return why the job cannot go on; "" if it can."""
        if failed.serves:
            return (
                "process 0 holds JAX's coordination service, without which no other process can "
                "continue"
            )
        if failed.unserved and (failed.joined or self.restarts):
            return NO_SERVICE
        if failed.joined and not failed.recoverable:
            return f"the program has not enabled that: {_RECOVERABILITY} before initialize()"
        if not self.restarts:
            return (
                "it failed before initialize(), where others wait for it" if failed.awaited else ""
            )
        if self._begun.get(failed.rank, 0) >= self._most:
            return f"it has already been restarted {counted(self._most, 'time')}"
        if sum(self._begun.values()) >= _OF_ALL * self._most:
            again = counted(_OF_ALL * self._most, "time")
            return f"the ranks have already been restarted {again} in all"
        return ""

"""Decisions after a rank's failure: the other ranks go on, the rank restarts, or the job ends.

They are for --on-rank-failure; how a job ends is decided in `stop_policy`.
"""

from __future__ import annotations

from collections.abc import Iterable

from mcjax_launch.kernel.launcher.part import compute_pause_s
from mcjax_launch.kernel.wire.value import Value
from mcjax_launch.ranks import format_count, format_ranks
from mcjax_launch.runs.stop_reasons import NO_SERVICE

_RECOVERABILITY = 'jax.config.update("jax_enable_recoverability", True)'
# All ranks together may be restarted this many times as often as a single rank.
_OF_ALL = 4


class FailedRank(Value):
    """Failure or loss of a rank.

    Args:
        rank: number of the rank.
        joined: True if its program has called initialize(), and not left the job since.
        runs_service: True if it is also process 0, which runs JAX's coordination service.
        recoverable: True if its program has asked JAX to survive other processes' failures.
        awaited: True if other ranks are in initialize() and need this rank there.
        unserved: True if it has called initialize() and process 0 has ended.

    """

    rank: int
    joined: bool = False
    runs_service: bool = False
    recoverable: bool = False
    awaited: bool = False
    unserved: bool = False


class GoOn(Value):
    """Decision that the other ranks go on without a rank."""

    rank: int


class BeginAgain(Value):
    """Decision to restart a rank, and to print that.

    Args:
        rank: number of the rank.
        pause_s: seconds from the end of its process to its restart.
        number: number of its restart, from 1.
        most: maximum number of restarts of a rank.

    """

    rank: int
    pause_s: float
    number: int
    most: int


class EndAll(Value):
    """Decision to end the job for a failure despite --on-rank-failure; `why`: the reason."""

    why: str


Effect = GoOn | BeginAgain | EndAll


class SurvivalPolicy:
    """Policy on the consequences of ranks' failures in an attempt (--on-rank-failure).

    Times (`now`, `deadline`) are seconds of any steady clock.

    Args:
        on_rank_failure: value of the option, "continue" or "restart:N".

    Attributes:
        restarts: True if failed ranks are restarted.

    """

    def __init__(self, on_rank_failure: str) -> None:
        how, _, most = on_rank_failure.partition(":")
        self.restarts = how == "restart"
        self._most = int(most or 0)
        self._begun: dict[int, int] = {}  # restarts of each rank, begun or decided
        self._open: set[int] = set()  # failed ranks about which a decision was made
        self._due: dict[int, float] = {}  # when a rank is restarted

    def decide_on_failure(self, failed: FailedRank) -> Effect | None:
        """Return the decision on a rank's failure; None if it was decided before.

        The caller may report a failure before the rank's process ends, and again afterwards.
        """
        rank = failed.rank
        if rank in self._open:
            return None
        if why := self._find_obstacle(failed):
            return EndAll(why)
        self._open.add(rank)
        if not self.restarts:
            return GoOn(rank)
        number = self._begun[rank] = self._begun.get(rank, 0) + 1
        return BeginAgain(rank, compute_pause_s(number - 1), number, self._most)

    def goes_on(self, rank: int) -> bool:
        """Return whether the policy has decided that the job goes on after a rank's failure."""
        return rank in self._open

    def record_end(self, rank: int, now: float) -> None:
        """Record the end of a rank's process, and schedule its restart if it will get one."""
        if self.restarts and rank in self._open:
            self._due[rank] = now + compute_pause_s(self._begun[rank] - 1)

    def cancel_restarts(self, ranks: Iterable[int]) -> list[int]:
        """Cancel scheduled restarts of these ranks of a lost host; return the ranks affected."""
        return [rank for rank in ranks if self._due.pop(rank, None) is not None]

    def record_restart(self, rank: int) -> int:
        """Record that a rank restarts now; return the number of the restart."""
        self._open.discard(rank)
        return self._begun[rank]

    def judge_call(self, absent: list[int]) -> str:
        """Return the reason to end the job when a rank calls initialize(); "" if the job goes on.

        Args:
            absent: ranks that have failed before they called initialize().

        """
        if self.restarts or not absent:
            return ""
        return f"{format_ranks(absent)} failed before initialize(), where others wait"

    @property
    def deadline(self) -> float | None:
        """Time at which to call `expire` next; None for never."""
        return min(self._due.values(), default=None)

    def expire(self, now: float) -> dict[int, int]:
        """Return the ranks to restart now, each with the number of its restart."""
        due = [rank for rank, at in self._due.items() if now >= at]
        for rank in due:
            del self._due[rank]
        return {rank: self.record_restart(rank) for rank in due}

    def _find_obstacle(self, failed: FailedRank) -> str:
        """Return why the job cannot go on after a failure; "" if it can."""
        if failed.runs_service:
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
            return f"it has already been restarted {format_count(self._most, 'time')}"
        if sum(self._begun.values()) >= _OF_ALL * self._most:
            again = format_count(_OF_ALL * self._most, "time")
            return f"the ranks have already been restarted {again} in all"
        return ""

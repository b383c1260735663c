"""Timers that act once or for a policy, and the pause before restarts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from mcjax_launch.wire.timers import scale_time

T = TypeVar("T", covariant=True)
U = TypeVar("U")
# Seconds before another attempt, or a rank's restart; doubled each time.
_FIRST_PAUSE_S = scale_time(1.0)
_MOST_PAUSE_S = scale_time(30.0)


def compute_pause_s(before: int) -> float:
    """Return the seconds to wait before restart number `before` + 1: 1, 2, 4, ... up to 30."""
    return min(_FIRST_PAUSE_S * float(2 ** min(before, 10)), _MOST_PAUSE_S)


class Policy(Protocol[T]):
    """Object that makes decisions and leaves their execution to its caller."""

    @property
    def deadline(self) -> float | None:
        """Time at which to call `expire`; None while there is nothing to wait for."""

    def expire(self, now: float) -> T | None:
        """Return a decision if the deadline has passed; None for none."""


class TimerAction(Generic[U]):
    """Timer that carries out a policy's decisions.

    Args:
        part: the policy.
        act: function called with each decision.

    """

    def __init__(self, part: Policy[U], act: Callable[[U], object]) -> None:
        self._part = part
        self._act = act

    @property
    def deadline(self) -> float | None:
        """Time at which to call `expire`; None while there is nothing to decide."""
        return self._part.deadline

    def expire(self, now: float) -> None:
        """Ask the policy for a decision, and carry it out."""
        decision = self._part.expire(now)
        if decision is not None:
            self._act(decision)


class OneShotTimer:
    """Timer that acts once.

    Args:
        deadline: time of the action, in time.monotonic's seconds.
        act: function called at that time.

    """

    def __init__(self, deadline: float, act: Callable[[], object]) -> None:
        self.deadline: float | None = deadline
        self._act = act

    def expire(self, now: float) -> None:
        """Call the function if the deadline has passed and it was not called before."""
        if self.deadline is not None and now >= self.deadline:
            self.deadline = None
            self._act()

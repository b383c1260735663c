"""Parts that decide and parts that act, as timers of the one loop."""

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from mcjax_launch.kernel.wire.timers import scaled

T = TypeVar("T", covariant=True)
U = TypeVar("U")
# Before another attempt, or a rank's next life; doubled each time.
_FIRST_PAUSE_S = scaled(1.0)
_MOST_PAUSE_S = scaled(30.0)


def pause_s(before: int) -> float:
    """How long to wait before the next attempt, or life, where so many have been waited for."""
    return min(_FIRST_PAUSE_S * float(2 ** min(before, 10)), _MOST_PAUSE_S)


class Deciding(Protocol[T]):
    """A part that says what is to be done, and does nothing itself."""

    @property
    def deadline(self) -> float | None:
        """When to call `expire`; None while there is nothing to wait for."""

    def expire(self, now: float) -> T | None:
        """What is to be done, if it is time."""


class Acting(Generic[U]):
    """A timer that does what a part decides.

    Args:
        part: that decides.
        act: called with what is to be done.

    """

    def __init__(self, part: Deciding[U], act: Callable[[U], object]) -> None:
        self._part = part
        self._act = act

    @property
    def deadline(self) -> float | None:
        """When the part has something to decide."""
        return self._part.deadline

    def expire(self, now: float) -> None:
        """Let it decide, and act on the decision."""
        decision = self._part.expire(now)
        if decision is not None:
            self._act(decision)


class Once:
    """A timer that acts once.

    Args:
        deadline: when, in time.monotonic's seconds.
        act: called then.

    """

    def __init__(self, deadline: float, act: Callable[[], object]) -> None:
        self.deadline: float | None = deadline
        self._act = act

    def expire(self, now: float) -> None:
        """Act, if it is time."""
        if self.deadline is not None and now >= self.deadline:
            self.deadline = None
            self._act()

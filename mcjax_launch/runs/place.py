"""Where a rank is in the course of a job, as its agent and its hook report it; a value.

What its stack adds to that is in `diagnosis.sightings`.
"""

from __future__ import annotations

from enum import Enum, auto

from mcjax_launch.kernel.wire.value import Value


class Stage(Enum):
    """How far a rank has got."""

    IMPORTING = auto()  # it cannot be forked before another process has imported (--preload)
    ABSENT = auto()  # it has not called initialize()
    JOINING = auto()  # in initialize()
    INSIDE = auto()  # in the middle of its program
    LEAVING = auto()  # in JAX's exit barrier
    LEFT = auto()  # it takes no part any more, and still runs
    ENDED = auto()


class Place(Value):
    """Where a rank is.

    Args:
        stage: how far it has got.
        since: when it got there, in time.monotonic's seconds; None where that says nothing.
        where: the user's line that called initialize(), while the rank is in it.

    """

    stage: Stage
    since: float | None = None
    where: str = ""

    @property
    def is_through(self) -> bool:
        """Whether nobody waits any longer for it to come through initialize()."""
        return self.stage not in (Stage.IMPORTING, Stage.ABSENT, Stage.JOINING)

    @property
    def waits_for_others(self) -> bool:
        """Whether it waits for the others whatever its program does."""
        return self.stage in (Stage.JOINING, Stage.LEAVING)

    def __str__(self) -> str:
        """Where it waits for the others, in words."""
        if self.stage is Stage.JOINING:
            return "in initialize()" + (f" at {self.where}" if self.where else "")
        return "in JAX's exit barrier"

"""Whether ranks on accelerators move: by where their Python stands, not by processor time.

NCCL spins while it waits, also on the thread that has called it, so there a rank that hangs is as
busy as one that computes. What stands at the same calls in two looks, and has run no program again
between them, has not moved. So a step has not, either: nobody can tell a long one from a hang.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from mcjax_launch.runs.state import RunState

if TYPE_CHECKING:
    from mcjax_launch.diagnosis.stacks import Stack

# Looks within --stall-timeout, and the shortest time between two: a stack takes a moment to come.
_LOOKS = 4
_SHORTEST_S = 0.5


class StandingLooks:
    """When to look where ranks stand, for --stall-timeout.

    Times are in time.monotonic's seconds.

    Args:
        state: of the run.
        stall_timeout: of the job.

    """

    def __init__(self, state: RunState, stall_timeout: float) -> None:
        self._state = state
        self._pause_s = max(stall_timeout / _LOOKS, _SHORTEST_S)
        self._asked_at = 0.0

    @property
    def deadline(self) -> float | None:
        """When to look next; None while no rank is on an accelerator."""
        state = self._state
        if state.pause.is_on or state.ending or not any(_looked_at(state)):
            return None
        return max(state.activity.active_at, self._asked_at) + self._pause_s

    def expire(self, now: float) -> bool | None:
        """Whether to look now; None: not."""
        deadline = self.deadline
        if deadline is None or now < deadline:
            return None
        self._asked_at = now
        return True


def saw(state: RunState, stacks: Iterable["Stack"], now: float) -> list[int]:
    """Ranks stand there.

    Args:
        state: of the run; changes.
        stacks: of the ranks.
        now: in time.monotonic's seconds.

    Returns:
        the ranks that are to say whether they run programs again from now on.

    """
    from mcjax_launch.diagnosis.waits import places

    activity = state.activity
    since = activity.active_at
    for rank, place in places(stacks).items():
        run = state.ranks[rank]
        # A look from before that tells nothing about the time since then.
        known = run.standing.at > since
        if run.is_looked_at and run.standing.seen(place, now) and known:
            activity.active_at = now
    activity.looked_at = now
    return _looked_at(state)


def _looked_at(state: RunState) -> list[int]:
    return [run.process_id for run in state.running if run.is_looked_at]

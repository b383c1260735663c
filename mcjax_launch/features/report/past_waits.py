"""Past waits of a run: which ranks waited for which others; pure.

Times are those of `mcjax_launch.journal.state`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mcjax_launch.journal.state import RunState
from mcjax_launch.wire.value import Value

INITIALIZE = "initialize()"
EXIT = "JAX's exit barrier"

# Shorter waits are not reported.
_SHORTEST_S = 0.1
# Ranks that arrive in this last part of a wait count as late too, beside the last.
_LATE = 0.1


class PastWait(Value):
    """A wait of some ranks for others.

    Args:
        place: name of the program, or one of the constants above.
        where: the user's line, as `file:line`; "" if there is none.
        arrived: (rank, time of arrival) of each rank that arrived, in order of time.
        late: the ranks that the other ranks waited for.
        until: time at which the wait ended.

    """

    place: str
    where: str
    arrived: tuple[tuple[int, float], ...]
    late: tuple[int, ...]
    until: float


def collect_waits(state: RunState, end: float) -> list[PastWait]:
    """Return the waits of a run in initialize(), in programs at its end, and in the exit barrier.

    Args:
        state: state of the run.
        end: time at which the reason to end the run became known, else the end of the run.

    """
    runs = state.ranks.values()
    calls = {run.process_id: run.membership.joining_at for run in runs}
    lines = {run.membership.call.where for run in runs if run.membership.call}
    where = lines.pop() if len(lines) == 1 else ""
    joined = [run for run in runs if run.membership.joined_at is not None and not run.failed]
    done = {run.process_id: run.membership.leaving_at for run in joined}
    found = [_make_wait(INITIALIZE, where, calls, end), _make_wait(EXIT, "", done, end)]
    for gap in state.gaps:
        begun = {**dict.fromkeys(gap.begun, gap.since), **dict.fromkeys(gap.behind)}
        found.append(_make_wait(gap.program.title, gap.program.where, begun, end))
    waits = (wait for wait in found if wait is not None)
    return sorted(waits, key=lambda wait: wait.arrived[0][1])


def _make_wait(
    place: str, where: str, times: Mapping[int, float | None], end: float
) -> PastWait | None:
    """Return a wait, from the time of arrival of each rank; None if no rank waited 0.1 s."""
    arrived = [(at, rank) for rank, at in times.items() if at is not None and at <= end]
    if not arrived:
        return None
    ordered = tuple((rank, at) for at, rank in sorted(arrived))
    first, last = ordered[0][1], ordered[-1][1]
    late: Iterable[int] = times.keys() - {rank for rank, _ in ordered}
    until = end if late else last
    late = late or (rank for rank, at in ordered if at > last - _LATE * (last - first))
    if until - first < _SHORTEST_S:
        return None
    return PastWait(place, where, ordered, tuple(sorted(late)), until)

"""Records of past waits: which ranks waited for which others; pure.

Times are those of `mcjax_launch.runs.state`.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from mcjax_launch.runs.spmd import RanProgram
from mcjax_launch.wire.value import Changing, Value, field

if TYPE_CHECKING:
    from mcjax_launch.runs.rank_run import RankRun
    from mcjax_launch.runs.sequences import Gap

INITIALIZE = "initialize()"
EXIT = "JAX's exit barrier"

# Shorter waits are not reported.
_SHORTEST_S = 0.1
# Ranks that arrive in this last part of a wait count as late too, beside the last.
_LATE = 0.1
# At most this many of the longest waits are kept, with this many arrivals in total.
_MOST_WAITS, _MOST_ARRIVALS = 256, 32_768
# At most this many programs are kept that some ranks have not reached.
_MOST_OPEN = 256


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

    @property
    def seconds(self) -> float:
        """Duration of the wait: the seconds that the first rank waited."""
        return self.until - self.arrived[0][1]

    @property
    def is_over(self) -> bool:
        """True if all late ranks arrived."""
        return {rank for rank, _ in self.arrived}.issuperset(self.late)


class _Gathering(Changing):
    program: RanProgram
    arrived: dict[int, float] = field(default_factory=dict)


class PastWaits:
    """Collector of the waits at first runs of programs that span processes.

    Memory is bounded: of the finished waits only the longest are kept.
    """

    def __init__(self) -> None:
        self._open: dict[str, _Gathering] = {}
        self._latest: dict[int, str] = {}  # the program to which each rank has come
        self._over: list[tuple[float, int, PastWait]] = []  # a heap, the shortest first
        self._count = self._arrivals = 0

    def record_arrival(self, rank: int, program: RanProgram, at: float) -> None:
        """Record that a rank is about to run a program for the first time."""
        if rank not in program.ranks:
            return
        found = self._open.get(program.fingerprint)
        if found is None or rank in found.arrived:  # the latter: its next program in turn
            found = self._open[program.fingerprint] = _Gathering(program)
        found.arrived[rank] = at
        self._latest[rank] = program.fingerprint
        if len(found.arrived) == len(program.ranks):
            del self._open[program.fingerprint]
            self._keep(_make_wait(program.title, program.where, found.arrived, (), at))
        elif len(self._open) > _MOST_OPEN:
            del self._open[next(iter(self._open))]

    def _keep(self, wait: PastWait | None) -> None:
        if wait is None:
            return
        self._count += 1
        self._arrivals += len(wait.arrived)
        heapq.heappush(self._over, (wait.seconds, self._count, wait))
        while len(self._over) > 1 and (
            len(self._over) > _MOST_WAITS or self._arrivals > _MOST_ARRIVALS
        ):
            self._arrivals -= len(heapq.heappop(self._over)[2].arrived)

    def list_waits(self, end: float, left: Collection[int] = ()) -> list[PastWait]:
        """Return all finished waits that are kept, and the waits still open at the end.

        Args:
            end: time at which the ranks gave up waiting.
            left: the ranks whose programs had ended before.

        """
        still = (self._make_open_wait(gathering, end, left) for gathering in self._open.values())
        return [wait for _, _, wait in self._over] + [wait for wait in still if wait is not None]

    def _make_open_wait(
        self, gathering: _Gathering, end: float, left: Collection[int]
    ) -> PastWait | None:
        """Return the wait of the ranks that still wait at an open gathering; None if too short."""
        program = gathering.program
        waiting = {
            rank: at
            for rank, at in gathering.arrived.items()
            if rank not in left and self._latest[rank] == program.fingerprint
        }
        missing = program.ranks - gathering.arrived.keys()
        return _make_wait(program.title, program.where, waiting, missing, end)


def collect_waits(
    ranks: Mapping[int, RankRun], reported: PastWaits | None, gaps: Iterable[Gap], end: float
) -> list[PastWait]:
    """Return the waits of a run, in order of time.

    Args:
        ranks: RankRun of each rank.
        reported: waits at programs, as hooks have reported them; None if not collected.
        gaps: programs that some ranks have begun and others have not.
        end: time at which the reason to end the run became known, else the end of the run.

    """
    ends = {rank: run.membership.leaving_at for rank, run in ranks.items()}
    left = {rank for rank, at in ends.items() if at is not None and at <= end}
    programs = [] if reported is None else reported.list_waits(end, left)
    told = [_find_joining_wait(ranks, end), *programs, _find_exit_wait(ranks, end)]
    found = [wait for wait in told if wait is not None]
    if all(wait.is_over for wait in found):  # hooks report only the first run of a program
        found += [
            PastWait(
                gap.program.title,
                gap.program.where,
                tuple((rank, gap.since) for rank in gap.begun),
                gap.behind,
                end,
            )
            for gap in gaps
            if end - gap.since >= _SHORTEST_S
        ]
    return sorted(found, key=lambda wait: wait.arrived[0][1])


def _find_joining_wait(ranks: Mapping[int, RankRun], end: float) -> PastWait | None:
    """Return the wait in initialize() for the last rank that called it; None if too short."""
    calls = {rank: run.membership.joining_at for rank, run in ranks.items()}
    lines = {run.membership.call.where for run in ranks.values() if run.membership.call}
    where = lines.pop() if len(lines) == 1 else ""
    return _make_wait_at(INITIALIZE, where, calls, end)


def _find_exit_wait(ranks: Mapping[int, RankRun], end: float) -> PastWait | None:
    """Return the ranks' wait in JAX's exit barrier, without failed ranks; None if too short."""
    joined = [run for run in ranks.values() if run.membership.joined_at is not None]
    done = {run.process_id: run.membership.leaving_at for run in joined if not run.failed}
    return _make_wait_at(EXIT, "", done, end)


def _make_wait_at(
    place: str, where: str, times: Mapping[int, float | None], end: float
) -> PastWait | None:
    arrived = {rank: at for rank, at in times.items() if at is not None and at <= end}
    return _make_wait(place, where, arrived, times.keys() - arrived.keys(), end)


def _make_wait(
    place: str, where: str, arrived: Mapping[int, float], missing: Iterable[int], end: float
) -> PastWait | None:
    """Return a wait; None if it was shorter than 0.1 s, or if no rank arrived.

    Args:
        place: see PastWait.
        where: see PastWait.
        arrived: time of arrival of each rank.
        missing: the ranks that never arrived.
        end: end of the wait if ranks are missing; else the last arrival is the end.

    """
    if not arrived:
        return None
    late = tuple(sorted(missing))
    ordered = tuple(sorted(arrived.items(), key=lambda arrival: arrival[1]))
    first, last = ordered[0][1], ordered[-1][1]
    until = end if late else last
    late = late or tuple(sorted(r for r, at in ordered if at > last - _LATE * (last - first)))
    wait = PastWait(place, where, ordered, late, until)
    return wait if wait.seconds >= _SHORTEST_S else None

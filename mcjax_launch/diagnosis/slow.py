"""Ranks that make the others wait, by looks at where main threads are; pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from mcjax_launch.diagnosis.sightings import Sighting, Stack
from mcjax_launch.kernel.wire.value import Value
from mcjax_launch.ranks import grouped
from mcjax_launch.runs.looks import Doing, Moment, Spot
from mcjax_launch.runs.rank_run import RankRun

# Fewer looks, or fewer separate waits of the others, tell nothing: one long wait is a checkpoint.
_LEAST_LOOKS, _LEAST_WAITS = 12, 5
# Most of the time is more than half of it, by so many standard deviations of a fair coin's.
_SURE = 1.5


class SlowRank(Value):
    """A rank that makes the others wait.

    Args:
        waited: the share of the time in which others waited for it.
        place: where it was then most often, in words; "" where that is not known.
        share: of the time, that it was there.

    """

    rank: int
    waited: float
    place: str = ""
    share: float = 0.0

    def line(self, *, for_a_time: bool = False) -> str:
        """It in words; `for_a_time`: that was not so in all of the run."""
        is_slow, the_time = ("was slow for a time", "it") if for_a_time else ("is slow", "the time")
        place = f"; it was {self.place} ({self.share:.0%})" if self.place else ""
        text = (
            f"rank {self.rank} {is_slow}: the others waited {self.waited:.0%} of {the_time} for it"
        )
        return (text + place).replace("%", " %")


def spot_of(run: RankRun, calls: str, beside: bool, blocked: str) -> Spot:
    """What a rank's main thread did.

    Args:
        run: the rank's.
        calls: of the thread, as a dump of stacks has them.
        beside: another thread of it is in JAX.
        blocked: where in the kernel the thread waited, "" where it ran.

    """
    seen = Sighting(run, Stack(run.process_id, run.host, 0, calls, blocked=blocked))
    if not seen.frames or seen.waits_for_somebody or seen.may_serve:
        return Spot(Doing.UNKNOWN)
    if seen.compiles:
        return Spot(Doing.COMPILING)
    if seen.is_blocked_by_jax or (beside and seen.waits_for_a_thread):
        return Spot(Doing.JAX)
    return Spot(Doing.ELSEWHERE, seen.standing)


def slow_ranks(moments: Iterable[Moment]) -> list[SlowRank]:
    """Those for which the others waited most of the time, the slowest first.

    Args:
        moments: looks, in order; those that some rank has not answered yet do not count.

    """
    known = [moment for moment in moments if moment.known]
    awaited = grouped((rank, moment) for moment in known for rank in awaited_at(moment))
    least = len(known) / 2 + _SURE * math.sqrt(len(known)) / 2
    total = sum(moment.weight for moment in known)
    found = [
        _slow_rank(rank, at, total)
        for rank, at in awaited.items()
        if len(known) >= _LEAST_LOOKS and sum(map(_is_new_wait, at)) >= _LEAST_WAITS
    ]
    sure = [one for one in found if one.waited * len(known) >= least]
    return sorted(sure, key=lambda one: (-one.waited, one.rank))


def awaited_at(moment: Moment) -> list[int]:
    """The ranks for which most of the others wait in JAX, at one moment."""
    known = moment.known
    doing = [spot.doing for spot in known.values()]
    waiting, away = doing.count(Doing.JAX), doing.count(Doing.ELSEWHERE)
    if Doing.COMPILING in doing or 2 * waiting <= waiting + away - 1:
        return []
    return [rank for rank, spot in known.items() if spot.doing is Doing.ELSEWHERE]


def _is_new_wait(moment: Moment) -> bool:
    """Whether a rank that waits has run Python since the look before."""
    waiting = (rank for rank, spot in moment.known.items() if spot.doing is Doing.JAX)
    return any(rank not in moment.stayed for rank in waiting)


def _slow_rank(rank: int, awaited: Sequence[Moment], total: int) -> SlowRank:
    """A rank, and the function that it was in most often, by its commonest line there."""
    lines: Counter[str] = Counter()
    functions: Counter[str] = Counter()
    for moment in awaited:
        if place := moment.known[rank].place:
            lines[place] += moment.weight
            functions[function_of(place)] += moment.weight
    waited = sum(moment.weight for moment in awaited) / total
    if not functions:
        return SlowRank(rank, waited)
    [(function, weight)] = functions.most_common(1)
    place = max((one for one in lines if function_of(one) == function), key=lambda one: lines[one])
    return SlowRank(rank, waited, place, weight / total)


def function_of(place: str) -> str:
    """A place without its line: `in load at data.py`."""
    return place.rpartition(":")[0]

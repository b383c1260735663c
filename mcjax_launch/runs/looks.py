"""Where the main threads of ranks were, at looks every few seconds.

A rank answers as soon as it runs Python: until then nothing is known but where it waited in the
kernel. What it answers holds for all looks since the one that it was asked at first.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from itertools import chain

from mcjax_launch.kernel.wire.value import Changing, Value, field
from mcjax_launch.ranks import grouped

#: What is judged while the run goes on: the last two minutes.
RECENT = 40
# Of all ranks together; each gets at least so many as are judged.
_MOST_SPOTS, _MOST_MOMENTS = 1 << 16, 512
# Fewer looks, or fewer separate waits of the others, tell nothing: one long wait is a checkpoint.
_LEAST_LOOKS, _LEAST_WAITS = 12, 5
# Most of the time is more than half of it, by so many standard deviations of a fair coin's.
_SURE = 1.5
#: So many slow ranks are named; where there are more, it is the program that is made so.
MOST_SLOW = 3


class Doing(StrEnum):
    """What a main thread does."""

    JAX = "jax"  # it is in JAX's code: it waits there, or sends work to devices
    COMPILING = "compiling"
    ELSEWHERE = "elsewhere"
    UNKNOWN = ""


class Spot(Value):
    """What a main thread does; `place`: elsewhere, in words."""

    doing: Doing
    place: str = ""


class Unanswered(Value):
    """A rank has been asked, and has not answered; see `PlacesAsked`."""

    blocked: str


class Moment(Changing):
    """One look.

    Attributes:
        at: when, in time.monotonic's seconds.
        spots: by rank; those are missing that could not be asked.
        stayed: the ranks that have run no Python since the look before.
        weight: for how many looks it stands.

    """

    at: float
    spots: dict[int, Spot | Unanswered] = field(default_factory=dict)
    stayed: set[int] = field(default_factory=set)
    weight: int = 1

    @property
    def known(self) -> Mapping[int, Spot]:
        """What each rank did; none while some have not answered."""
        spots = {rank: spot for rank, spot in self.spots.items() if isinstance(spot, Spot)}
        return spots if len(spots) == len(self.spots) else {}


class Looks:
    """The looks of a run: the last ones all, of those before one in so many, the longer it runs.

    Args:
        ranks: how many there are.

    Attributes:
        recent: the last looks.
        slow: the first ranks that were slow in those, each as it was at its slowest.

    """

    def __init__(self, ranks: int) -> None:
        self.recent: list[Moment] = []
        self.slow: dict[int, SlowRank] = {}
        self._before: list[Moment] = []
        self._most = max(RECENT, min(_MOST_MOMENTS, _MOST_SPOTS // max(1, ranks)))
        self._one_in = 1
        self._count = 0

    @property
    def moments(self) -> list[Moment]:
        """All that are kept, in order."""
        return [*self._before, *self.recent]

    def begin(self, at: float, compiling: Collection[int]) -> None:
        """Ranks are about to be asked; of these it is known what they do."""
        for slow in slow_ranks(self.recent):  # once a look, for it takes each of them
            if slow.rank in self.slow or len(self.slow) < MOST_SLOW:
                both = slow, self.slow.get(slow.rank, slow)
                self.slow[slow.rank] = max(both, key=lambda seen: seen.waited)
        spots: dict[int, Spot | Unanswered] = dict.fromkeys(compiling, Spot(Doing.COMPILING))
        self.recent.append(Moment(at, spots))
        if len(self.recent) > RECENT:
            self._keep(self.recent.pop(0))

    def _keep(self, moment: Moment) -> None:
        self._count += 1
        if self._count % self._one_in == 0:
            moment.weight = self._one_in
            self._before.append(moment)
        if len(self._before) >= self._most:
            self._one_in *= 2
            self._before = self._before[1::2]
            for kept in self._before:
                kept.weight = self._one_in

    def asked(self, blocked: Mapping[int, str]) -> None:
        """These ranks have been asked."""
        if self.recent:
            spots = self.recent[-1].spots
            for rank, at in blocked.items():
                spots.setdefault(rank, Unanswered(at))

    def answered(self, rank: int, spot_of: Callable[[str], Spot]) -> None:
        """A rank has answered.

        Args:
            rank: which.
            spot_of: tells what it did, by where in the kernel it waited.

        """
        later: Moment | None = None
        for moment in chain(reversed(self.recent), reversed(self._before)):
            spot = moment.spots.get(rank)
            if not isinstance(spot, Unanswered):
                return
            moment.spots[rank] = spot_of(spot.blocked)
            if later is not None:
                later.stayed.add(rank)
            later = moment


# --- which ranks make the others wait ---


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


def slow_ranks(moments: Iterable[Moment]) -> list[SlowRank]:
    """Return the ranks for which the others waited most of the time, the slowest first.

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
    """Return the ranks for which most of the others wait in JAX, at one moment."""
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

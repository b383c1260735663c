"""Where the main threads of ranks were, at looks every few seconds.

A rank answers as soon as it runs Python: until then nothing is known but where it waited in the
kernel. What it answers holds for all looks since the one that it was asked at first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from enum import StrEnum
from itertools import chain

from mcjax_launch.kernel.wire.value import Changing, Value, field

#: What is judged while the run goes on: the last two minutes.
RECENT = 40
# Of all ranks together; each gets at least so many as are judged.
_MOST_SPOTS, _MOST_MOMENTS = 1 << 16, 512


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

    """

    def __init__(self, ranks: int) -> None:
        self.recent: list[Moment] = []
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

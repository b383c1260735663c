"""Positions of ranks' main threads, polled every few seconds, and which ranks are slow.

A rank answers a poll as soon as it runs Python. Until then only its wait in the kernel is known.
The answer counts for every recent poll since the first unanswered one.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import StrEnum

from mcjax_launch.ranks import group_by_key
from mcjax_launch.wire.value import Changing, Value, field

#: Number of polls that are judged while the run goes on: those of the last two minutes.
RECENT = 40
# Limits of the selection of all polls: positions over all ranks, and polls.
_MOST_POSITIONS, _MOST_POLLS = 1 << 16, 512
# With fewer polls, or fewer separate waits, no rank is called slow: one long wait is a checkpoint.
_LEAST_POLLS, _LEAST_WAITS = 12, 5
# Most of the time is more than half of it, by this many standard deviations of a fair coin.
_SURE = 1.5
#: At most this many slow ranks are named: if there are more, the program is made that way.
MOST_SLOW = 3


class ThreadState(StrEnum):
    """The kind of work that a polled main thread does."""

    JAX = "jax"  # it is in JAX's code: it waits there, or sends work to devices
    COMPILING = "compiling"
    ELSEWHERE = "elsewhere"
    UNKNOWN = ""


class PolledPosition(Value):
    """The kind of work of a main thread and, if it is outside JAX, its `place` in words."""

    doing: ThreadState
    place: str = ""


class Unanswered(Value):
    """Marker for a rank that has not answered a poll yet.

    Args:
        blocked: kernel function or system call in which its main thread waited; "" if unknown.

    """

    blocked: str


class Poll(Changing):
    """A poll of all ranks.

    Attributes:
        at: time of the poll, in time.monotonic's seconds.
        positions: position of each rank; ranks that could not be polled are missing.
        stayed: the ranks that have run no Python since the previous poll.

    """

    at: float
    positions: dict[int, PolledPosition | Unanswered] = field(default_factory=dict)
    stayed: set[int] = field(default_factory=set)

    @property
    def known(self) -> Mapping[int, PolledPosition]:
        """Position of each polled rank, by rank; empty until all of them have answered."""
        positions = {
            rank: position
            for rank, position in self.positions.items()
            if isinstance(position, PolledPosition)
        }
        return positions if len(positions) == len(self.positions) else {}


class PositionPolls:
    """The polls of a run: all recent ones, and an even selection of all.

    Args:
        ranks: number of ranks.

    Attributes:
        recent: the last polls, at most `RECENT`.
        kept: each poll, in a long run each 2nd, 4th, 8th ... poll, in order.
        slow: the first `MOST_SLOW` ranks found slow in recent polls, each at its slowest.

    """

    def __init__(self, ranks: int) -> None:
        self.recent: deque[Poll] = deque(maxlen=RECENT)
        self.kept: list[Poll] = []
        self.slow: dict[int, SlowRank] = {}
        self._most = max(RECENT, min(_MOST_POLLS, _MOST_POSITIONS // max(1, ranks)))
        self._one_in = 1
        self._count = 0

    def begin(self, at: float, compiling: Collection[int]) -> None:
        """Start a poll, in which the ranks in `compiling` are known to compile."""
        for slow in find_slow_ranks(self.recent):  # only once per poll: it reads all recent ones
            if slow.rank in self.slow or len(self.slow) < MOST_SLOW:
                both = slow, self.slow.get(slow.rank, slow)
                self.slow[slow.rank] = max(both, key=lambda seen: seen.waited)
        positions: dict[int, PolledPosition | Unanswered] = dict.fromkeys(
            compiling, PolledPosition(ThreadState.COMPILING)
        )
        self.recent.append(Poll(at, positions))
        if self._count % self._one_in == 0:
            self.kept.append(self.recent[-1])
        self._count += 1
        if len(self.kept) > self._most:
            self._one_in *= 2
            self.kept = self.kept[::2]

    def record_question(self, blocked: Mapping[int, str]) -> None:
        """Record that ranks have been polled; `blocked` has the kernel wait of each."""
        if self.recent:
            positions = self.recent[-1].positions
            for rank, at in blocked.items():
                positions.setdefault(rank, Unanswered(at))

    def record_answer(self, rank: int, position_of: Callable[[str], PolledPosition]) -> None:
        """Record a rank's answer for every recent poll since the first unanswered one.

        Args:
            rank: the rank that answered.
            position_of: called with the kernel wait at each poll; returns the rank's position.

        """
        later: Poll | None = None
        for poll in reversed(self.recent):
            position = poll.positions.get(rank)
            if not isinstance(position, Unanswered):
                return
            poll.positions[rank] = position_of(position.blocked)
            if later is not None:
                later.stayed.add(rank)
            later = poll


# --- which ranks make the others wait ---


class SlowRank(Value):
    """A rank that makes the others wait.

    Args:
        waited: share of the time in which the other ranks waited for it, from 0 to 1.
        place: its most frequent position in that time, in words; "" if unknown.
        share: share of that time that it spent at `place`, from 0 to 1.

    """

    rank: int
    waited: float
    place: str = ""
    share: float = 0.0


def find_slow_ranks(polls: Iterable[Poll]) -> list[SlowRank]:
    """Return the ranks for which the others waited most of the time, the slowest first.

    Args:
        polls: polls, in order of time; polls with missing answers are skipped.

    """
    known = [poll for poll in polls if poll.known]
    awaited = group_by_key((rank, poll) for poll in known for rank in find_awaited_ranks(poll))
    least = len(known) / 2 + _SURE * math.sqrt(len(known)) / 2
    found = [
        _make_slow_rank(rank, at, len(known))
        for rank, at in awaited.items()
        if len(known) >= _LEAST_POLLS and sum(map(_is_new_wait, at)) >= _LEAST_WAITS
    ]
    sure = [slow for slow in found if slow.waited * len(known) >= least]
    return sorted(sure, key=lambda slow: (-slow.waited, slow.rank))


def find_awaited_ranks(poll: Poll) -> list[int]:
    """Return the ranks for which most of the other ranks wait in JAX, at one poll."""
    known = poll.known
    doing = [position.doing for position in known.values()]
    waiting, away = doing.count(ThreadState.JAX), doing.count(ThreadState.ELSEWHERE)
    if ThreadState.COMPILING in doing or 2 * waiting <= waiting + away - 1:
        return []
    return [rank for rank, position in known.items() if position.doing is ThreadState.ELSEWHERE]


def _is_new_wait(poll: Poll) -> bool:
    """Return whether a rank that waits in JAX has run Python since the previous poll."""
    waiting = (rank for rank, position in poll.known.items() if position.doing is ThreadState.JAX)
    return any(rank not in poll.stayed for rank in waiting)


def _make_slow_rank(rank: int, awaited: Sequence[Poll], total: int) -> SlowRank:
    """Return the SlowRank of a rank, with its most frequent function and line.

    Args:
        rank: the rank that the other ranks waited for.
        awaited: the polls at which they waited for it.
        total: number of polls that all polled ranks have answered.

    """
    lines: Counter[str] = Counter()
    functions: Counter[str] = Counter()
    for poll in awaited:
        if place := poll.known[rank].place:
            lines[place] += 1
            functions[strip_line_number(place)] += 1
    waited = len(awaited) / total
    if not functions:
        return SlowRank(rank, waited)
    [(function, count)] = functions.most_common(1)
    places = (place for place in lines if strip_line_number(place) == function)
    commonest = max(places, key=lambda place: lines[place])
    return SlowRank(rank, waited, commonest, count / total)


def strip_line_number(place: str) -> str:
    """Remove the line number from a place: `in load at data.py:3` gives `in load at data.py`."""
    return place.rpartition(":")[0]

"""Order in which a mesh's ranks come to their programs, and which of them come late; pure.

Times are known of some programs, which stand for all until the next known one.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping
from statistics import median_low

from mcjax_launch.wire.value import Changing, Value

#: At most this many late ranks are named: if there are more, the program is made that way.
MOST_SLOW = 3
# Seconds of a period, and periods that are judged while the run goes on: the last two minutes.
_PERIOD_S, _RECENT = 10.0, 12
# A rank comes late if it comes so many seconds after most others, beyond the clocks' uncertainty.
_LATE_S = 1e-3
# With fewer seconds, runs of a program or times, no rank is named.
_LEAST_S, _LEAST_RUNS, _LEAST_TIMES = 10.0, 20, 12
# A rank is named if it comes late to this share of a program's runs, and takes this share of the
# time.
_MOST_OF, _MUCH_OF = 0.6, 0.1
# Programs that are remembered until all ranks have come to them.
_MOST_PENDING = 4096


class SlowRank(Value):
    """A rank that comes late to most runs of a program, so that the others wait for it.

    Args:
        rank: the rank.
        program: identity of the program for which the others wait most; 0 if unknown.
        share: share of the program's runs to which the rank comes late, from 0 to 1.
        runs: number of these runs.
        behind_s: average seconds after most others, where it comes late.
        waited: share of the time in which the others waited for it in any program, from 0 to 1.

    """

    rank: int
    program: int
    share: float
    runs: int
    behind_s: float
    waited: float


class _Moment(Value):
    """Times at which all ranks came to a program, and the program's identity."""

    number: int
    program: int
    times: Mapping[int, float]

    @property
    def usual(self) -> float:
        """Time at which half of the ranks had come."""
        return median_low(self.times.values())


class _Lateness(Changing):
    """Number of runs to which a rank came late, and by how many seconds together."""

    runs: int = 0
    seconds: float = 0.0


class _Period:
    """Sums over a part of a run.

    Attributes:
        seconds: its length.
        times: number of known times.
        runs: number of runs of each program.
        late: lateness by rank and program.

    """

    def __init__(self) -> None:
        self.seconds, self.times = 0.0, 0
        self.runs: Counter[int] = Counter()
        self.late: defaultdict[int, defaultdict[int, _Lateness]]
        self.late = defaultdict(lambda: defaultdict(_Lateness))

    def add(self, moment: _Moment, after: _Moment, uncertain_s: float) -> None:
        """Add the programs from a known one until the next known one."""
        runs = after.number - moment.number
        self.runs[moment.program] += runs
        self.times += 1
        self.seconds += after.usual - moment.usual
        for rank, at in moment.times.items():
            behind_s = at - moment.usual
            # If most others have gone on before it came, they did not wait.
            if behind_s > _LATE_S + uncertain_s and at < after.usual:
                late = self.late[rank][moment.program]
                late.runs += runs
                late.seconds += behind_s * runs

    def include(self, other: _Period) -> None:
        """Add the sums of another period."""
        self.seconds += other.seconds
        self.times += other.times
        self.runs.update(other.runs)
        for rank, programs in other.late.items():
            for program, late in programs.items():
                own = self.late[rank][program]
                own.runs += late.runs
                own.seconds += late.seconds

    def find_slow(self) -> list[SlowRank]:
        """Return the ranks that come late to most runs of a program, the slowest first.

        A rank that takes more time than there is runs behind the others, which do not wait.
        """
        if self.seconds < _LEAST_S or self.times < _LEAST_TIMES:
            return []
        found = []
        for rank, programs in self.late.items():
            waited = sum(late.seconds for late in programs.values()) / self.seconds
            program = max(programs, key=lambda each: programs[each].seconds)
            late, runs = programs[program], self.runs[program]
            share = late.runs / runs
            if runs >= _LEAST_RUNS and share >= _MOST_OF and _MUCH_OF <= waited <= 1:
                behind_s = late.seconds / late.runs
                found.append(SlowRank(rank, program, share, runs, behind_s, waited))
        return sorted(found, key=lambda each: (-each.waited, each.rank))


class ProgramArrivals:
    """Times at which the ranks of a mesh came to its programs.

    Args:
        members: the ranks of the mesh.

    Attributes:
        uncertain_s: seconds by which times of two ranks may differ although they are equal.
        slow: the first `MOST_SLOW` ranks found slow in two minutes, each at its slowest.

    """

    def __init__(self, members: frozenset[int]) -> None:
        self.uncertain_s = 0.0
        self.slow: dict[int, SlowRank] = {}
        self._members = members
        self._pending: dict[int, dict[int, float]] = {}  # by number
        self._latest: _Moment | None = None
        self._whole = _Period()
        self._recent: deque[_Period] = deque([_Period()], maxlen=_RECENT)

    def add(self, rank: int, times: Iterable[tuple[int, int, float]]) -> None:
        """Add the times at which a rank came to some programs.

        Args:
            rank: the rank.
            times: of each program its number, identity and time, in seconds of one clock.

        """
        if rank not in self._members:
            return
        for number, program, at in times:
            known = self._pending.setdefault(number, {})
            known[rank] = at
            if len(known) == len(self._members):
                del self._pending[number]
                self._add(_Moment(number, program, known))
        if len(self._pending) > _MOST_PENDING:
            for number in sorted(self._pending)[: _MOST_PENDING // 2]:
                del self._pending[number]

    def _add(self, moment: _Moment) -> None:
        latest, self._latest = self._latest, moment
        if latest is None or moment.number < latest.number:
            return
        period = self._recent[-1]
        period.add(latest, moment, self.uncertain_s)
        if period.seconds >= _PERIOD_S:
            self._judge()
            self._whole.include(period)
            self._recent.append(_Period())

    def _judge(self) -> None:
        """Record the ranks that have been slow lately."""
        recent = _Period()
        for period in self._recent:
            recent.include(period)
        for slow in recent.find_slow():
            if slow.rank in self.slow or len(self.slow) < MOST_SLOW:
                both = slow, self.slow.get(slow.rank, slow)
                self.slow[slow.rank] = max(both, key=lambda each: each.waited)

    def find_slow(self) -> list[SlowRank]:
        """Return the ranks that were slow in the whole run, as far as it is known."""
        whole = _Period()
        whole.include(self._whole)
        whole.include(self._recent[-1])
        return whole.find_slow()

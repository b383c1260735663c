"""Programs that ranks have run over each mesh, in order, and the first difference of ranks; pure.

Each rank numbers the programs of a mesh from 1, and all ranks of the mesh must run the same ones in
the same order. A rank that is behind differs from no other: only programs with the same number are
compared.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Collection, Mapping, Sequence
from enum import Enum, auto

from mcjax_launch.runs.arrivals import ProgramArrivals
from mcjax_launch.runs.spmd import format_title
from mcjax_launch.wire.value import Value

#: Programs that are kept although all ranks have run them.
KEPT = 64
# Entries to keep for a mesh: if a rank is so far behind, its mesh is no longer compared.
_MOST_KEPT = 1 << 20
# A rank may withdraw its latest entry a moment after it was read.
_PROVISIONAL_S = 0.4
# So many programs after a difference show of what kind it is.
_ENOUGH_AFTER = 220
# Programs that must be alike after a difference, if there are so many; at least; how far to search.
_ALIKE, _LEAST_ALIKE, _FARTHEST = 200, 2, 13


class ProgramName(Value):
    """A program's name, such as `jit(step)`, and the user's line that first ran it, "" if unknown.

    Args:
        title: name as JAX's users know it.
        where: the line, as `file:line`.

    """

    title: str
    where: str

    def __str__(self) -> str:
        """Return the name with its line."""
        return f"{self.title} at {self.where}" if self.where else self.title


class DeviationKind(Enum):
    """Kind of a deviation: what ranks did at a difference."""

    UNCLEAR = auto()
    SKIPPED = auto()
    EXTRA = auto()  # programs that the other ranks do not run here
    REPEATED = auto()
    SKIPPED_OR_REPEATED = auto()  # in a loop, both may leave the same trace
    SWAPPED = auto()
    OTHER = auto()  # another program in place of the others'
    RESHAPED = auto()  # the same function with an argument of another shape
    ENDED = auto()


class Deviation(Value):
    """Deviation of some ranks at the first difference of a mesh from what others ran.

    Args:
        ranks: these ranks.
        kind: what they did.
        program: the program that they ran; None if they have ended.
        skipped, extra: number of programs that they skipped, and that they ran in addition.

    """

    ranks: tuple[int, ...]
    kind: DeviationKind
    program: ProgramName | None
    skipped: int = 0
    extra: int = 0


class Difference(Value):
    """First difference between the programs of a mesh's ranks.

    Args:
        number: number of the program in the mesh's sequence, from 1.
        usual: the program that most ranks ran.
        ranks: the ranks that ran it.
        deviations: what the other ranks did.
        lost: first and last number of the latest programs that were overwritten before they were
            read, where ranks may have differed already; None if there are none.

    """

    number: int
    usual: ProgramName
    ranks: tuple[int, ...]
    deviations: tuple[Deviation, ...]
    lost: tuple[int, int] | None = None


class Gap(Value):
    """Program of a mesh that some of its ranks have begun, while the others have not.

    Args:
        number: number of the program in the mesh's sequence, from 1.
        program: the program.
        begun: the ranks that have begun it.
        behind: the ranks whose latest program is the one before.
        since: time of the latest report of those that have begun it, in time.monotonic's seconds.

    """

    number: int
    program: ProgramName
    begun: tuple[int, ...]
    behind: tuple[int, ...]
    since: float = 0.0


class RankSequence:
    """Programs of a rank in a mesh's sequence.

    Attributes:
        count: number of programs that the rank has begun to run.
        base: number of the last program that is no longer kept, or needed.
        programs: identities of the later ones.
        changed_at: time of the latest report, in time.monotonic's seconds.

    """

    def __init__(self) -> None:
        self.count = self.base = 0
        self.programs = array("I")
        self.changed_at = 0.0

    def add(self, first: int, programs: Sequence[int], at: float) -> bool:
        """Add programs from number `first` on, which replace programs from this number on.

        Returns:
            False if a replaced program is no longer kept, so that it may have been compared.

        """
        self.changed_at = at
        is_known = self.count < first or first > self.base
        if first > self.count + 1:  # those between are unknown
            self.drop_until(first - 1)
        self.count = first - 1 + len(programs)
        if first <= self.base:
            programs = programs[self.base + 1 - first :]
        del self.programs[max(0, first - 1 - self.base) :]
        self.programs.extend(programs)
        return is_known

    def count_settled(self, now: float) -> int:
        """Return the number of programs, without the latest if it may still be withdrawn."""
        is_provisional = now < self.changed_at + _PROVISIONAL_S and self.count > 0
        return self.count - is_provisional

    def drop_until(self, base: int) -> None:
        """Forget the programs up to a number."""
        if base > self.base:
            del self.programs[: base - self.base]
            self.base = max(base, self.base)

    def get_from(self, number: int) -> array[int]:
        """Return the programs from a number on."""
        return self.programs[number - 1 - self.base :]


class MeshSequence:
    """Programs of a mesh's ranks, in order.

    Args:
        thread: name of the ranks' threads that run them; "" for the main threads.
        members: the ranks of the mesh.

    Attributes:
        by_rank: the programs of each rank.
        arrivals: times at which the ranks came to programs.
        agreed: number of programs that are equal in all ranks.
        difference: the first difference; None if there is none.
        is_compared: False if its order says nothing, or a rank is too far behind.

    """

    def __init__(self, thread: str, members: Collection[int]) -> None:
        self.thread = thread
        self.members = frozenset(members)
        self.by_rank = {rank: RankSequence() for rank in sorted(members)}
        self.arrivals = ProgramArrivals(self.members)
        self.agreed = 0
        self.difference: Difference | None = None
        self.is_compared = True
        self._lost: tuple[int, int] | None = None  # see `Difference`
        self._differs_since = math.inf

    def add(self, rank: int, first: int, programs: Sequence[int], at: float) -> None:
        """Add a rank's programs, from number `first` on."""
        sequence = self.by_rank.get(rank)
        if sequence is None:
            return
        before = sequence.count  # less than agreed if programs of another rank were overwritten
        if not sequence.add(first, programs, at) or sequence.count < min(before, self.agreed):
            self.is_compared = False
        if sequence.base > self.agreed:  # some programs were overwritten before they were read
            begin = self.agreed + 1
            if self._lost is not None and self._lost[1] == self.agreed:  # none were equal since
                begin = self._lost[0]
            self._lost = begin, sequence.base
            self.agreed = sequence.base
            for other in self.by_rank.values():
                other.drop_until(self.agreed)
        if len(sequence.programs) > _MOST_KEPT:
            self.is_compared = False
            sequence.drop_until(sequence.count - KEPT)

    def find_gap(self, names: ProgramNames) -> Gap | None:
        """Return the first program that not all ranks have begun; None if there is none."""
        least = min((own.count for own in self.by_rank.values()), default=0)
        begun = tuple(rank for rank, own in self.by_rank.items() if own.count > least)
        known = next((rank for rank in begun if self.by_rank[rank].base <= least), None)
        if known is None or not self.is_compared:
            return None
        program = names[self.by_rank[known].get_from(least + 1)[0]]
        behind = tuple(rank for rank, own in self.by_rank.items() if own.count == least)
        since = max(self.by_rank[rank].changed_at for rank in begun)
        return Gap(least + 1, program, begun, behind, since)

    def compare(
        self, names: ProgramNames, ended: Collection[int], now: float, wait_s: float
    ) -> float:
        """Look for a difference; return the time at which to look again, infinity for never.

        Args:
            names: names of programs.
            ended: ranks that will run no more programs.
            now: current time, in time.monotonic's seconds.
            wait_s: seconds to wait for programs after a difference, which show its kind.

        """
        if not self.is_compared or self.difference is not None or len(self.by_rank) < 2:
            return math.inf
        settled = {
            rank: sequence.count if rank in ended else sequence.count_settled(now)
            for rank, sequence in self.by_rank.items()
        }
        self._advance(min(settled.values()), names)
        groups = self._group(settled, ended, names)
        if len(groups) > 1:
            self._differs_since = min(self._differs_since, now)
            after = [self.by_rank[rank].count - self.agreed for g in groups.values() for rank in g]
            wait_until = self._differs_since + wait_s
            if min(after) > _ENOUGH_AFTER or now >= wait_until or ended:
                self.difference = self._describe(groups, names)
                return math.inf
            return wait_until
        self._differs_since = math.inf
        is_provisional = any(settled[rank] < seq.count for rank, seq in self.by_rank.items())
        return now + _PROVISIONAL_S if is_provisional else math.inf

    def _advance(self, end: int, names: ProgramNames) -> None:
        """Set `agreed` to the number before the first difference, at most `end`."""
        ranks = list(self.by_rank.values())
        first = ranks[0].get_from(self.agreed + 1)[: max(0, end - self.agreed)]
        for other in ranks[1:]:
            theirs = other.get_from(self.agreed + 1)[: len(first)]
            if theirs != first:
                pairs = zip(first, theirs, strict=True)
                differ = (at for at, pair in enumerate(pairs) if not names.are_same(*pair))
                del first[next(differ, len(first)) :]
        self.agreed += len(first)
        for sequence in ranks:
            sequence.drop_until(self.agreed - KEPT)

    def _group(
        self, settled: Mapping[int, int], ended: Collection[int], names: ProgramNames
    ) -> dict[int | None, list[int]]:
        """Group the ranks by the program that they have run after the agreed ones, None: ended."""
        groups: dict[int | None, list[int]] = {}
        for rank, sequence in self.by_rank.items():
            if settled[rank] > self.agreed:
                program = sequence.get_from(self.agreed + 1)[0]
                known = (other for other in groups if other is not None)
                same = next((other for other in known if names.are_same(other, program)), program)
                groups.setdefault(same, []).append(rank)
            elif rank in ended:
                groups.setdefault(None, []).append(rank)
        return groups

    def _describe(
        self, groups: Mapping[int | None, Sequence[int]], names: ProgramNames
    ) -> Difference:
        ran = [program for program in groups if program is not None]
        usual = max(ran, key=lambda program: len(groups[program]))
        deviations = []
        for program, ranks in groups.items():
            if program is None:
                deviations.append(Deviation(tuple(ranks), DeviationKind.ENDED, None))
            elif program != usual:
                deviation = self._classify(groups[usual][0], ranks[0], names)
                same = names[program].title == names[usual].title
                if self._lost is not None:  # the first difference may be among those
                    deviation = deviation.copy_with(kind=DeviationKind.UNCLEAR)
                elif same and deviation.kind in (DeviationKind.OTHER, DeviationKind.UNCLEAR):
                    deviation = deviation.copy_with(kind=DeviationKind.RESHAPED)
                who = tuple(ranks)
                deviations.append(deviation.copy_with(ranks=who, program=names[program]))
        usually = names[usual], tuple(groups[usual])
        return Difference(self.agreed + 1, *usually, tuple(deviations), self._lost)

    def _classify(self, usual: int, rank: int, names: ProgramNames) -> Deviation:
        """Return what a rank did where its programs first differ from those of the rank `usual`."""
        after = (self.by_rank[each].get_from(self.agreed + 1) for each in (usual, rank))
        before = self.by_rank[rank].programs[: self.agreed - self.by_rank[rank].base]
        return classify(*(list(map(names.get_common, ran)) for ran in (before, *after)))


def classify(before: Sequence[int], usual: Sequence[int], own: Sequence[int]) -> Deviation:
    """Return what a rank did, from the first program on that differs from other ranks'.

    Args:
        before: programs that all ranks have run before.
        usual: programs of other ranks from there on.
        own: programs of the rank from there on.

    """
    skipped, extra = _find_start(own, usual), _find_start(usual, own)
    is_other = _are_alike(usual[1:], own[1:])
    known = min(len(usual), len(own), 2 + _ALIKE)
    goes_on_alike = list(usual[2:known]) == list(own[2:known])
    again = bool(extra) and list(before[-extra:]) == list(own[:extra])
    if list(usual[:2]) == list(own[1::-1]) and not is_other and goes_on_alike:
        kind = DeviationKind.SWAPPED
    elif skipped and again and abs(skipped - extra) <= 1:  # neither is more likely
        kind = DeviationKind.SKIPPED_OR_REPEATED
    elif is_other and skipped != 1:
        kind = DeviationKind.OTHER
    elif skipped and not 0 < extra < skipped:
        kind = DeviationKind.SKIPPED
    elif extra:
        kind = DeviationKind.REPEATED if again else DeviationKind.EXTRA
    else:
        kind = DeviationKind.UNCLEAR
    return Deviation((), kind, None, skipped, extra)


def _find_start(sequence: Sequence[int], within: Sequence[int]) -> int:
    """Return after how many programs `within` goes on as a sequence begins; 0 if it does not."""
    return next((at for at in range(1, _FARTHEST) if _are_alike(sequence, within[at:])), 0)


def _are_alike(first: Sequence[int], second: Sequence[int]) -> bool:
    """Return whether two sequences begin alike; False if there is too little of one."""
    length = min(len(first), len(second), _ALIKE)
    return length >= _LEAST_ALIKE and list(first[:length]) == list(second[:length])


class ProgramNames:
    """Names of programs, by the identity that ranks give them."""

    def __init__(self) -> None:
        self._names: dict[int, ProgramName] = {}
        self._fingerprints: dict[int, set[str]] = {}
        self._common: dict[int, int] = {}  # identities by those of programs that are the same
        self._by_fingerprint: dict[str, int] = {}

    def record(self, identity: int, name: str, where: str, fingerprint: str) -> None:
        """Record a rank's name for a program, with the fingerprint of the compiled program."""
        self._names.setdefault(identity, ProgramName(format_title(name), where))
        self._fingerprints.setdefault(identity, set()).add(fingerprint)
        common = self._by_fingerprint.setdefault(fingerprint, identity)
        self._common.setdefault(identity, common)

    def __getitem__(self, identity: int) -> ProgramName:
        return self._names.get(identity, ProgramName("a program", ""))

    def get_common(self, identity: int) -> int:
        """Return the identity that stands for a program in all ranks, as far as that is known."""
        return self._common.get(identity, identity)

    def are_same(self, first: int, second: int) -> bool:
        """Return whether two identities stand for the same compiled program.

        They differ if a rank calls a function with the same code that it has defined elsewhere. If
        programs of both are the same, those that ran may be.
        """
        if first == second:
            return True
        known = self._fingerprints
        return not known.get(first, set()).isdisjoint(known.get(second, ()))


class ProgramSequences:
    """Programs that ranks have run over all meshes.

    Attributes:
        names: names of the programs.
        meshes: sequence of each mesh, by the number of the ranks' process and a key.

    """

    def __init__(self) -> None:
        self.names = ProgramNames()
        self.meshes: dict[tuple[int, int], MeshSequence] = {}

    @property
    def differences(self) -> list[tuple[MeshSequence, Difference]]:
        """Sequences with a difference, each with its first difference."""
        meshes = self.meshes.values()
        return [(mesh, mesh.difference) for mesh in meshes if mesh.difference is not None]

    @property
    def gaps(self) -> list[Gap]:
        """The first program of each mesh that some of its ranks have begun and others have not."""
        found = (mesh.find_gap(self.names) for mesh in self.meshes.values())
        return [gap for gap in found if gap is not None]

    def count(self, rank: int) -> int:
        """Return the number of programs that a rank has begun to run, over all meshes."""
        return sum(
            mesh.by_rank[rank].count for mesh in self.meshes.values() if rank in mesh.members
        )

    def list_last(self, rank: int, most: int) -> list[tuple[int, ProgramName]]:
        """Return a rank's latest programs in the mesh where it has run most, with their numbers."""
        own = [mesh.by_rank[rank] for mesh in self.meshes.values() if rank in mesh.members]
        if not own:
            return []
        sequence = max(own, key=lambda each: each.count)
        first = max(sequence.base, sequence.count - most) + 1
        found = sequence.get_from(first)
        return [(first + at, self.names[program]) for at, program in enumerate(found)]

    def conclude(self) -> list[Difference]:
        """Return the differences, when no rank runs programs any more."""
        self.compare((), math.inf, 0)
        return [difference for _, difference in self.differences]

    def compare(self, ended: Collection[int], now: float, wait_s: float) -> float:
        """Look for differences; return when to look again (see `MeshSequence.compare`)."""
        times = [mesh.compare(self.names, ended, now, wait_s) for mesh in self.meshes.values()]
        return min(times, default=math.inf)

"""Programs that ranks have launched over each mesh, in order, and where ranks differ; pure.

Each rank numbers the programs of a mesh from 1, and all ranks of the mesh must run the same ones in
the same order. A rank that is behind differs from no other: ranks differ only if the next programs
of two ranks are known, or one of these ranks has ended.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Collection, Sequence

from mcjax_launch.features.recorder.replicas import ReplicaValues
from mcjax_launch.journal.stop_reasons import StopReason
from mcjax_launch.wire import exit_status
from mcjax_launch.wire.value import Value

# Programs before a difference that are kept.
_KEPT = 64
# Programs by which a rank can be behind: if there are more, it is not seen whether it runs them.
_MOST_BEHIND = 1 << 20
# A rank that ends so many programs before the others has run some that were not recorded.
_MOST_UNSEEN = 256
# Programs that must be alike after a difference, if there are so many; at least; how far to search.
_ALIKE, _LEAST_ALIKE, _FARTHEST = 200, 2, 13
# Programs that may come in another order.
_MOST_PERMUTED = 64


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


_UNKNOWN = ProgramName("an unknown program", "")


class Deviation(Value):
    """Deviation of some ranks at a difference of a mesh from what others ran.

    If neither `skipped` nor `extra` is known, they ran another program. If both are, either may
    have happened: in a loop they leave the same trace.

    Args:
        ranks: these ranks.
        identity: identity of the program that they ran; 0 if they have ended.
        skipped, extra: number of programs that they skipped, and that they ran in addition.
        is_permuted: True if they ran the same programs as others in another order.
        count: number of the programs of these ranks.

    """

    ranks: tuple[int, ...]
    identity: int
    skipped: int
    extra: int
    is_permuted: bool
    count: int

    @property
    def is_other(self) -> bool:
        """True if the ranks ran another program in place of that of most ranks."""
        return bool(self.identity) and not (self.skipped or self.extra or self.is_permuted)


class Difference(Value):
    """Difference between the programs of a mesh's ranks.

    Args:
        number: number of the program in the sequence of most ranks, from 1.
        identity: identity of the program that most ranks ran.
        ranks: the ranks that ran it.
        deviations: what the other ranks did.

    """

    number: int
    identity: int
    ranks: tuple[int, ...]
    deviations: tuple[Deviation, ...]

    @property
    def other_code(self) -> dict[int, tuple[int, ...]]:
        """The program of each group of ranks, by identity, if programs were replaced; else {}."""
        others = {found.identity: found.ranks for found in self.deviations if found.is_other}
        return {self.identity: self.ranks, **others} if others else {}


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
        count: number of programs that the rank has launched.
        programs: identities of those that are not compared yet.
        begun: identity of the program that the rank is about to launch; 0 if unknown.
        changed_at: time of the latest report, in time.monotonic's seconds.

    """

    def __init__(self) -> None:
        self.count = self.begun = 0
        self.programs = array("I")
        self.changed_at = 0.0

    @property
    def next(self) -> int:
        """Identity of the first program that is not compared yet; 0 if it is unknown."""
        return self.programs[0] if self.programs else self.begun

    @property
    def ahead(self) -> int:
        """Number of programs after those that were compared."""
        return len(self.programs) + bool(self.begun)

    def get_next(self, index: int) -> int:
        """Return the identity of a program by its index in those `ahead`."""
        return self.programs[index] if index < len(self.programs) else self.begun

    def list_next(self) -> array[int]:
        """Return the programs that are not compared yet, and the one begun."""
        return self.programs + array("I", [self.begun] if self.begun else [])


# Next programs by identity, 0 for ended, and the ranks of each.
_Groups = dict[int, tuple[int, ...]]


class MeshSequence:
    """Programs of a mesh's ranks, in order.

    Args:
        members: the ranks of the mesh.

    Attributes:
        by_rank: the programs of each rank.
        difference: the first difference; None if there is none.
        has_order: False if threads of a rank launch programs at the same time.
        apart: the ranks that are at each of several next programs, if they are; else {}.
        unseen: why the programs are not compared, in words; "" if they are.

    """

    def __init__(self, members: Collection[int]) -> None:
        self.members = frozenset(members)
        self.by_rank = {rank: RankSequence() for rank in sorted(members)}
        self.difference: Difference | None = None
        self.has_order = True
        self.apart: _Groups = {}
        self.unseen = ""
        self._recent = array("I")  # the latest programs that were compared
        self._apart_since = 0.0

    @property
    def is_compared(self) -> bool:
        """True while no difference is known, and the programs of all ranks are."""
        return self.difference is None and not self.unseen

    @property
    def equal(self) -> int:
        """Number of programs that all ranks have run alike, from the first one on."""
        return min(own.count - len(own.programs) for own in self.by_rank.values())

    def add(self, rank: int, first: int, programs: Sequence[int], begun: int, at: float) -> None:
        """Add a rank's programs, from number `first` on, and the one that it has begun."""
        sequence = self.by_rank.get(rank)
        if sequence is None:
            return
        if first != sequence.count + 1:
            self.unseen = f"rank {rank} ran too many programs while its agent was suspended"
        sequence.count = first - 1 + len(programs)
        sequence.changed_at, sequence.begun = at, begun
        sequence.programs.extend(programs)
        if len(sequence.programs) > _MOST_BEHIND:
            self.unseen = self.unseen or "a rank is too far behind"
        if not self.is_compared:
            for other in self.by_rank.values():
                other.programs = other.programs[-_KEPT:]

    def find_gap(self, names: ProgramNames) -> Gap | None:
        """Return the first program that not all ranks have begun; None if there is none."""
        if not self.is_compared or not self.has_order:
            return None
        least = min(own.ahead for own in self.by_rank.values())
        begun = tuple(rank for rank, own in self.by_rank.items() if own.ahead > least)
        if not begun:
            return None
        behind = tuple(rank for rank, own in self.by_rank.items() if own.ahead == least)
        first = self.by_rank[begun[0]]
        number = first.count - len(first.programs) + least + 1
        since = max(self.by_rank[rank].changed_at for rank in begun)
        return Gap(number, names[first.get_next(least)], begun, behind, since)

    def list_last(self, rank: int, most: int) -> list[tuple[int, int]]:
        """Return the number and the identity of a rank's latest programs."""
        own = self.by_rank[rank]
        found = (self._recent + own.programs)[-most:]
        numbered = list(enumerate(found, own.count - len(found) + 1))
        return [*numbered, (own.count + 1, own.begun)][-most:] if own.begun else numbered

    def compare(self, ended: Collection[int], now: float, wait_s: float) -> float:
        """Look for the first difference; return when to look again, infinity for never.

        Args:
            ended: ranks that will run no more programs.
            now: current time, in time.monotonic's seconds.
            wait_s: seconds to wait for the programs after a difference: they show what it is.

        """
        if not self.has_order:
            self.unseen = self.unseen or "several threads of a rank run them at the same time"
        if not self.is_compared:
            return math.inf
        self._advance()
        groups = self._group(ended)
        if len(groups) < 2:
            self.apart = {}
            return math.inf
        if groups.keys() != self.apart.keys():
            self._apart_since = now
        self.apart = groups
        if now < self._apart_since + wait_s:
            return self._apart_since + wait_s
        self._record(groups, ended)
        return math.inf

    def _advance(self) -> None:
        """Drop the next programs that are equal in all ranks."""
        ranks = list(self.by_rank.values())
        least = min(len(own.programs) for own in ranks)
        first = ranks[0].programs[:least]
        for other in ranks[1:]:
            theirs = other.programs[: len(first)]
            if theirs != first:
                pairs = zip(first, theirs, strict=True)
                del first[next(at for at, (ours, own) in enumerate(pairs) if ours != own) :]
        if first:
            self._recent = (self._recent + first[-_KEPT:])[-_KEPT:]
            for own in ranks:
                del own.programs[: len(first)]

    def _group(self, ended: Collection[int]) -> _Groups:
        """Group ranks by their next program, if it is known; 0 for ranks that have ended."""
        groups: dict[int, list[int]] = {}
        for rank, own in self.by_rank.items():
            if (program := own.next) or rank in ended:
                groups.setdefault(program, []).append(rank)
        return {program: tuple(ranks) for program, ranks in groups.items()}

    def _record(self, groups: _Groups, ended: Collection[int]) -> None:
        """Record the difference between groups of ranks."""
        usual = max((program for program in groups if program), key=lambda each: len(groups[each]))
        of_usual = self.by_rank[groups[usual][0]]
        deviations = []
        for program, ranks in groups.items():
            own = self.by_rank[ranks[0]]
            if program == usual:
                continue
            if not program and of_usual.ahead > _MOST_UNSEEN:
                self.unseen = f"rank {ranks[0]} recorded nothing while others went on"
                return
            are_whole = groups[usual][0] in ended and ranks[0] in ended
            how = (0, 0, False)
            if program:
                how = classify(of_usual.list_next(), own.list_next(), are_whole=are_whole)
            deviations.append(Deviation(ranks, program, *how, own.count))
        number = of_usual.count - len(of_usual.programs) + 1
        self.difference = Difference(number, usual, groups[usual], tuple(deviations))


def classify(
    usual: Sequence[int], own: Sequence[int], *, are_whole: bool = False
) -> tuple[int, int, bool]:
    """Return how a rank deviates from others, from the first program on that differs.

    Args:
        usual, own: programs of the others and of the rank.
        are_whole: True if no more programs will follow.

    Returns:
        number of programs that it skipped, and that it ran in addition; and whether it ran the same
        ones in another order.

    """
    by_skipped = {at: _count_alike(own, usual[at:]) for at in range(1, _FARTHEST)}
    by_extra = {at: _count_alike(usual, own[at:]) for at in range(1, _FARTHEST)}
    replaced = _count_alike(usual[1:], own[1:])
    most = max(*by_skipped.values(), *by_extra.values(), replaced, _LEAST_ALIKE)
    same = _find_permutation(usual, own)
    if same and (most < _ALIKE or _are_alike(usual[same:], own[same:])):
        return 0, 0, True
    if are_whole and Counter(usual) == Counter(own):
        return 0, 0, True
    skipped, extra = (
        next((at for at, alike in found.items() if alike == most), 0)
        for found in (by_skipped, by_extra)
    )
    if replaced == most and skipped != 1:
        return 0, 0, False
    if skipped and extra and skipped != extra:  # the other one follows in a loop
        return (skipped, 0, False) if skipped < extra else (0, extra, False)
    return skipped, extra, False


def _count_alike(first: Sequence[int], second: Sequence[int]) -> int:
    """Return how many programs two sequences begin with alike.

    Returns:
        `_ALIKE` for as many or more, or all that are known, unless these are too few.

    """
    length = min(len(first), len(second), _ALIKE)
    pairs = zip(first[:length], second[:length], strict=True)
    alike = next((at for at, (ours, own) in enumerate(pairs) if ours != own), length)
    return _ALIKE if alike == length >= _LEAST_ALIKE else alike


def _are_alike(first: Sequence[int], second: Sequence[int]) -> bool:
    """Return whether two sequences, of which more may follow, are the same."""
    return _count_alike(first, second) == _ALIKE or bool(first and first == second)


def _find_permutation(usual: Sequence[int], own: Sequence[int]) -> int:
    """Return how many next programs are the same in another order, the fewest; 0 if none are."""
    balance: Counter[int] = Counter()
    for count, (ours, theirs) in enumerate(zip(usual[:_MOST_PERMUTED], own, strict=False), 1):
        balance[ours] += 1
        balance[theirs] -= 1
        if not any(balance.values()):
            return count
    return 0


class ProgramNames:
    """Names of programs, by their identity."""

    def __init__(self) -> None:
        self._names: dict[int, ProgramName] = {}

    def __getitem__(self, identity: int) -> ProgramName:
        """Return the name of a program."""
        return self._names.get(identity, _UNKNOWN)

    def record(self, identity: int, name: ProgramName) -> None:
        """Record the name of a program; the first one stays."""
        self._names.setdefault(identity, name)


class ProgramSequences:
    """Programs that ranks have run over all meshes.

    Args:
        ends_job: True if a difference ends the job (--verify-spmd).

    Attributes:
        names: names of the programs.
        meshes: sequence of each mesh, by the number of the ranks' process and a key.
        texts: the code of programs that ranks have run in place of one another, by identity; ""
            if it is not kept.
        values: the values of what ranks hold in common.

    """

    def __init__(self, *, ends_job: bool = False) -> None:
        self.ends_job = ends_job
        self.names = ProgramNames()
        self.meshes: dict[tuple[int, int], MeshSequence] = {}
        self.texts: dict[int, str] = {}
        self.values = ReplicaValues()

    @property
    def differences(self) -> list[Difference]:
        """The first difference of each mesh that has one."""
        found = (mesh.difference for mesh in self.meshes.values())
        return [difference for difference in found if difference is not None]

    @property
    def gaps(self) -> list[Gap]:
        """The first program of each mesh that some of its ranks have begun and others have not."""
        found = (mesh.find_gap(self.names) for mesh in self.meshes.values())
        return [gap for gap in found if gap is not None]

    def find_begun(self, rank: int) -> int:
        """Return the identity of the program that a rank is about to launch; 0 if unknown."""
        meshes = (mesh for mesh in self.meshes.values() if rank in mesh.members)
        return next((begun for mesh in meshes if (begun := mesh.by_rank[rank].begun)), 0)

    def count(self, rank: int) -> int:
        """Return the number of programs that a rank has launched, over all meshes."""
        return sum(
            mesh.by_rank[rank].count for mesh in self.meshes.values() if rank in mesh.members
        )

    def find_latest(self, rank: int) -> tuple[int, bool]:
        """Return a rank's number of programs in the mesh where it has run most; (0, False) if none.

        The flag is True if the last of these is one that it is about to launch.
        """
        own = [mesh.by_rank[rank] for mesh in self.meshes.values() if rank in mesh.members]
        if not own:
            return 0, False
        latest = max(own, key=lambda each: each.count)
        return latest.count + bool(latest.begun), bool(latest.begun)

    def list_last(self, rank: int, most: int) -> list[tuple[int, ProgramName]]:
        """Return a rank's latest programs in the mesh where it has run most, with their numbers."""
        own = [mesh for mesh in self.meshes.values() if rank in mesh.members]
        if not own:
            return []
        mesh = max(own, key=lambda each: each.by_rank[rank].count)
        return [(number, self.names[program]) for number, program in mesh.list_last(rank, most)]

    def conclude(self) -> list[Difference]:
        """Return the differences, when no rank runs programs any more."""
        self.compare((), math.inf, 0)
        return self.differences

    def compare(self, ended: Collection[int], now: float, wait_s: float) -> float:
        """Look for differences; return when to look again (see `MeshSequence.compare`)."""
        times = [mesh.compare(ended, now, wait_s) for mesh in self.meshes.values()]
        return min(times, default=math.inf)


# --- reasons to end the job (--verify-spmd) ---


def diverged(details: Sequence[str]) -> StopReason:
    """Return the reason to end a job whose ranks run different programs.

    Args:
        details: lines on the different programs.

    """
    message = "--verify-spmd: the ranks run different programs"
    return StopReason(message, exit_status.FAILED, tuple(details))


def not_replicated(details: Sequence[str]) -> StopReason:
    """Return the reason to end a job whose ranks hold other values in a replicated array.

    Args:
        details: lines on the array.

    """
    message = "--verify-spmd: arrays that are called replicated are not"
    return StopReason(message, exit_status.FAILED, tuple(details))

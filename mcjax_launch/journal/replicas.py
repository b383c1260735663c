"""Values of the arrays that ranks hold in common, by digests, and where they differ; pure.

Ranks report digests of the arguments and outputs of some programs. What they report of the same
program of a mesh's sequence is compared, once it is known that they have run the same programs so
far. Not all ranks need report the same programs.
"""

from __future__ import annotations

import math
from array import array
from typing import TYPE_CHECKING, Protocol

from mcjax_launch.wire.value import Value

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    class ComparedPrograms(Protocol):
        """Programs of a mesh's ranks, as `sequences.MeshSequence` compares them."""

        members: frozenset[int]
        has_order: bool
        unseen: str

        @property
        def is_different(self) -> bool: ...
        @property
        def equal(self) -> int: ...


# Seconds to wait for the digests of the other ranks.
_WAIT_S = 1.0
# Programs of a mesh whose digests wait.
_MOST_WAITING = 256


class HeldPart(Value):
    """Array, or part of an array, that ranks have in common.

    Args:
        index: number of the array among a program's arguments or outputs.
        name: path of the array; "" if there is none.
        part: the part, such as `[0:4, :]`; "" for the whole array.

    """

    index: int
    name: str
    part: str


class ValueDifference(Value):
    """Difference between the values of an array that ranks hold in common.

    Args:
        number: number of the program in its mesh's sequence, from 1.
        identity: the program's identity.
        of_arguments: True for an argument of the program, False for an output.
        held: the array.
        more: number of further arrays of this program that differ.
        groups: the ranks that hold equal values, the largest group first.

    """

    number: int
    identity: int
    of_arguments: bool
    held: HeldPart
    more: int
    groups: tuple[tuple[int, ...], ...]


class LastComparison(Value):
    """Latest comparison of values without a difference.

    Args:
        number: number of the program in its mesh's sequence.
        identity: the program's identity.
        arrays: number of arrays, and parts of arrays, that were compared.
        ranks: number of ranks that hold them.
        at: time of the comparison, in time.monotonic's seconds.

    """

    number: int
    identity: int
    arrays: int
    ranks: int
    at: float


class _Reports:
    """Digests of a program's arguments or outputs, by rank, that wait to be compared."""

    def __init__(self, at: float) -> None:
        self.since = at
        self.by_rank: dict[int, tuple[int, array[int]]] = {}  # identity and digests


class ReplicaValues:
    """Comparison of what ranks hold in common.

    Attributes:
        processors: what computes in each rank, by rank.
        difference: the first difference; None if there is none.
        last: the latest comparison; None if there was none.
        count: number of comparisons.

    """

    def __init__(self) -> None:
        self.processors: dict[int, str] = {}
        self.difference: ValueDifference | None = None
        self.last: LastComparison | None = None
        self.count = 0
        # By rank, program, and whether they are arguments.
        self._parts: dict[tuple[int, int, bool], Sequence[HeldPart]] = {}
        # By mesh; then by the program's number, and whether they are outputs.
        self._waiting: dict[tuple[int, int], dict[tuple[int, bool], _Reports]] = {}

    def describe(
        self, rank: int, identity: int, of_arguments: bool, parts: Sequence[HeldPart]
    ) -> None:
        """Record of which arrays a rank will report digests."""
        self._parts[rank, identity, of_arguments] = parts

    def add(
        self,
        place: tuple[int, int],
        rank: int,
        program: tuple[int, int],
        digests: array[int],
        *,
        of_arguments: bool,
        now: float,
    ) -> None:
        """Add a rank's digests of a program of a mesh: its number and identity."""
        number, identity = program
        waiting = self._waiting.setdefault(place, {})
        reports = waiting.setdefault((number, not of_arguments), _Reports(now))
        reports.by_rank[rank] = identity, digests
        if len(waiting) > _MOST_WAITING:
            del waiting[min(waiting)]

    def compare(
        self, meshes: Mapping[tuple[int, int], ComparedPrograms], now: float, *, is_over: bool
    ) -> float:
        """Look for differences; return the time at which to look again, infinity for never.

        Args:
            meshes: the programs of each mesh.
            now: current time, in time.monotonic's seconds.
            is_over: True if no rank will report anything more.

        """
        wait_s = 0.0 if is_over else _WAIT_S
        again = math.inf
        for place, waiting in self._waiting.items():
            mesh = meshes.get(place)
            if mesh is not None and self.difference is None:
                again = min(again, self._compare_mesh(mesh, waiting, now, wait_s))
        return again

    def _compare_mesh(
        self,
        mesh: ComparedPrograms,
        waiting: dict[tuple[int, bool], _Reports],
        now: float,
        wait_s: float,
    ) -> float:
        if mesh.is_different or mesh.unseen or not mesh.has_order:
            waiting.clear()  # numbers of programs say nothing any more
        for (number, of_outputs), reports in sorted(waiting.items(), key=lambda each: each[0]):
            # The arguments of a program are there before the program.
            if mesh.equal < number - (not of_outputs):
                break
            if len(reports.by_rank) < len(mesh.members) and now < reports.since + wait_s:
                return reports.since + wait_s
            del waiting[number, of_outputs]
            self._compare_program(number, reports, now, of_arguments=not of_outputs)
            if self.difference is not None:
                break
        return math.inf

    def _compare_program(
        self, number: int, reports: _Reports, now: float, *, of_arguments: bool
    ) -> None:
        # What the same processors hold in common, and the ranks by their digest of it.
        held: dict[tuple[int, str, str, int], dict[int, list[int]]] = {}
        names: dict[tuple[int, str, str, int], HeldPart] = {}
        for rank, (identity, digests) in sorted(reports.by_rank.items()):
            processor = self.processors.get(rank, "")
            parts = self._parts.get((rank, identity, of_arguments), ())
            for part, digest in zip(parts, digests, strict=False):
                key = part.index, part.part, processor, identity
                names.setdefault(key, part)
                held.setdefault(key, {}).setdefault(digest, []).append(rank)
        shared = {key: found for key, found in held.items() if sum(map(len, found.values())) > 1}
        if not shared:
            return
        different = [key for key in sorted(shared) if len(shared[key]) > 1]
        if different:
            first = different[0]
            groups = sorted(map(tuple, held[first].values()), key=lambda each: (-len(each), each))
            more = len({key[0] for key in different} - {first[0]})
            place = number, first[-1], of_arguments
            self.difference = ValueDifference(*place, names[first], more, tuple(groups))
            return
        self.count += 1
        ranks = {rank for found in shared.values() for group in found.values() for rank in group}
        identity = next(iter(shared))[-1]
        self.last = LastComparison(number, identity, len(shared), len(ranks), now)

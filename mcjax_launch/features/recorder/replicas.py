"""Values of the arrays that ranks hold in common, by digests, and where they differ; pure.

Ranks report digests of the arguments and outputs of some programs, each rank in the order of a
mesh's sequence. Those of a program are compared when all ranks of the mesh have reported them, and
it is known that the ranks have run the same programs so far.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Protocol

from mcjax_launch.wire.value import Value

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence

    class ComparedPrograms(Protocol):
        """Programs of a mesh's ranks, as `sequences.MeshSequence` compares them."""

        members: frozenset[int]
        has_order: bool

        @property
        def is_compared(self) -> bool: ...
        @property
        def equal(self) -> int: ...


# Programs of a mesh whose digests are kept until all ranks have come.
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
        is_mapped: True if the program has a `shard_map`.

    """

    number: int
    identity: int
    of_arguments: bool
    held: HeldPart
    more: int
    groups: tuple[tuple[int, ...], ...]
    is_mapped: bool


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


class _Described(Value):
    """The arrays of which a rank reports digests, for a program's arguments or outputs."""

    parts: tuple[HeldPart, ...]
    is_mapped: bool


class _Report(Value):
    """A rank's digests of a program's arguments or outputs."""

    identity: int
    described: _Described
    digests: array[int]


# Number of a program, and 1 for its outputs.
_Place = tuple[int, int]


class _WaitingDigests:
    """Digests of a mesh that wait for other ranks.

    Attributes:
        reports: by place and rank.
        reached: the latest place of which a rank has reported digests, by rank.

    """

    def __init__(self) -> None:
        self.reports: dict[_Place, dict[int, _Report]] = {}
        self.reached: dict[int, _Place] = {}


class ReplicaValues:
    """Comparison of what ranks hold in common.

    Attributes:
        processors: what computes in each rank, by rank.
        difference: the first difference; None if there is none.
        last: the latest comparison; None if there was none.
        count: number of comparisons.
        dropped: number of programs whose digests were not kept until all ranks had come.

    """

    def __init__(self) -> None:
        self.processors: dict[int, str] = {}
        self.difference: ValueDifference | None = None
        self.last: LastComparison | None = None
        self.count = self.dropped = 0
        # By rank, program, and whether they are arguments.
        self._described: dict[tuple[int, int, bool], _Described] = {}
        self._waiting: dict[tuple[int, int], _WaitingDigests] = {}  # by mesh

    def describe(
        self,
        rank: int,
        identity: int,
        parts: Sequence[HeldPart],
        *,
        of_arguments: bool,
        is_mapped: bool = False,
    ) -> None:
        """Record of which arrays a rank will report digests."""
        self._described[rank, identity, of_arguments] = _Described(tuple(parts), is_mapped)

    def add(
        self,
        mesh: tuple[int, int],
        rank: int,
        program: tuple[int, int],
        digests: array[int],
        *,
        of_arguments: bool,
    ) -> None:
        """Add a rank's digests of a program of a mesh: its number and identity."""
        number, identity = program
        described = self._described.get((rank, identity, of_arguments))
        if described is None or len(described.parts) != len(digests):
            return
        waiting = self._waiting.setdefault(mesh, _WaitingDigests())
        place = number, int(not of_arguments)
        waiting.reached[rank] = place
        waiting.reports.setdefault(place, {})[rank] = _Report(identity, described, digests)
        if len(waiting.reports) > _MOST_WAITING:
            del waiting.reports[min(waiting.reports)]
            self.dropped += 1

    def compare(
        self,
        meshes: Mapping[tuple[int, int], ComparedPrograms],
        ended: Container[int],
        now: float,
    ) -> None:
        """Look for the first difference.

        Args:
            meshes: the programs of each mesh.
            ended: ranks that will report nothing more.
            now: current time, in time.monotonic's seconds.

        """
        for key, waiting in self._waiting.items():
            mesh = meshes.get(key)
            while mesh is not None and waiting.reports and self.difference is None:
                place = number, of_outputs = min(waiting.reports)
                if not mesh.is_compared or not mesh.has_order:
                    waiting.reports.clear()  # numbers of programs say nothing any more
                    break
                # The arguments of a program are there before the program.
                if mesh.equal < number - (not of_outputs):
                    break
                absent = mesh.members - waiting.reports[place].keys()
                if any(waiting.reached.get(r, place) <= place and r not in ended for r in absent):
                    break
                reports = waiting.reports.pop(place)
                if not absent:  # else some rank has compared other launches
                    self._compare_program(place, reports, now)

    def _compare_program(self, place: _Place, reports: dict[int, _Report], now: float) -> None:
        # What the same processors hold in common, and the ranks by their digest of it.
        held: dict[tuple[int, str, str, int], dict[int, list[int]]] = {}
        names: dict[tuple[int, str, str, int], HeldPart] = {}
        for rank, report in sorted(reports.items()):
            processor = self.processors.get(rank, "")
            for part, digest in zip(report.described.parts, report.digests, strict=True):
                key = part.index, part.part, processor, report.identity
                names.setdefault(key, part)
                held.setdefault(key, {}).setdefault(digest, []).append(rank)
        shared = {key: found for key, found in held.items() if sum(map(len, found.values())) > 1}
        if not shared:
            return
        number, of_outputs = place
        different = [key for key in sorted(shared) if len(shared[key]) > 1]
        if different:
            first = different[0]
            groups = sorted(map(tuple, held[first].values()), key=lambda each: (-len(each), each))
            more = len({key[0] for key in different} - {first[0]})
            is_mapped = any(report.described.is_mapped for report in reports.values())
            self.difference = ValueDifference(
                number, first[-1], not of_outputs, names[first], more, tuple(groups), is_mapped
            )
            return
        self.count += 1
        ranks = {rank for found in shared.values() for group in found.values() for rank in group}
        identity = next(iter(shared))[-1]
        self.last = LastComparison(number, identity, len(shared), len(ranks), now)

"""The comparison of the programs that span processes, in the order each rank first ran them; pure.

Two ranks that share programs have to run them in one order. Every rank is compared with the lowest
rank of each program's mesh, over the programs that both take part in, as far as both have got.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from mcjax_launch.protocol import hook_messages
from mcjax_launch.protocol.value import Value

# Of each rank at least so many are kept until the others have run as many.
_MOST_PROGRAMS = 1024


class Program(Value):
    """A program that spans processes, as one rank ran it.

    Args:
        fingerprint: of its code and its devices; the same on all ranks, if all is well.
        ranks: that take part.
        shapes: of its arguments.
        where: the user's line that ran it.

    """

    name: str
    fingerprint: str
    ranks: frozenset[int]
    shapes: tuple[str, ...] = ()
    where: str = ""

    @property
    def title(self) -> str:
        """Its name as JAX's users know it."""
        return titled(self.name)

    @classmethod
    def from_hook(cls, message: hook_messages.Program, ranks: Mapping[int, int]) -> "Program":
        """A program as a rank's hook reports it.

        Args:
            message: the hook's.
            ranks: the rank that has joined as each JAX process.

        """
        processes = ranks if message.processes is None else message.processes
        taking_part = frozenset(ranks[number] for number in processes if number in ranks)
        return cls(message.name, message.fingerprint, taking_part, message.shapes, message.where)


class Rerun(Value):
    """A rank has run a program that it had run before.

    Args:
        request: the number of the request that made it report that.
        partners: the ranks that have to run it too before this one can have its results.

    """

    rank: int
    program: Program
    request: int
    partners: frozenset[int]

    @classmethod
    def from_hook(
        cls, rank: int, message: hook_messages.Rerun, ranks: Mapping[int, int]
    ) -> "Rerun":
        """One as the rank's hook reports it; see Program.from_hook."""
        partners = frozenset(ranks[number] for number in message.partners if number in ranks)
        return cls(rank, Program.from_hook(message.program, ranks), message.request, partners)


def titled(name: str) -> str:
    """A program's name as JAX's users know it: jit(step)."""
    return f"jit({name[4:]})" if name.startswith("jit_") else name


@dataclass(eq=False)
class _Pair:
    """How far two ranks have been compared: so many programs, up to these places."""

    first: int
    second: int
    count: int = 0
    at: dict[int, int] = field(default_factory=dict)


class _Sequence:
    """The latest programs of one rank; `start` is the place of the first that is kept."""

    def __init__(self) -> None:
        self.programs: list[Program] = []
        self.start = 0
        self.over = False

    def add(self, program: Program) -> None:
        self.programs.append(program)
        if len(self.programs) > 2 * _MOST_PROGRAMS:
            del self.programs[:_MOST_PROGRAMS]
            self.start += _MOST_PROGRAMS

    @property
    def end(self) -> int:
        return self.start + len(self.programs)


class Divergence(Value):
    """Two ranks diverge: after `count` shared programs `first` runs `program`, at `place`."""

    first: int
    second: int
    count: int
    place: int
    program: Program | None


class Side(Value):
    """What some ranks do where others do something else: a program, none any more, or not yet."""

    ranks: tuple[int, ...]
    program: Program | None
    over: bool = False
    again: bool = False  # they had run this one before


class Comparison:
    """Takes each rank's programs in order, from all ranks in any order, and compares.

    Attributes:
        divergence: the first.
        count: of all programs of all ranks so far.
        reruns: what ranks have reported to run again; whoever asked them takes it from here.

    """

    def __init__(self) -> None:
        self.divergence: Divergence | None = None
        self.count = 0
        self.reruns: list[Rerun] = []
        self._instead: dict[int, Program] = {}
        self._known: dict[str, Program] = {}  # one for all ranks: there may be many
        self._sequences: dict[int, _Sequence] = {}
        self._pairs: dict[tuple[int, int], _Pair] = {}
        self._pairs_of: dict[int, list[_Pair]] = {}

    def ran(self, rank: int, program: Program) -> None:
        """A rank has run a program for the first time; one on others' devices does nothing."""
        if rank not in program.ranks:
            return
        if len(self._known) > 2 * _MOST_PROGRAMS:
            self._known.clear()
        program = self._known.setdefault(program.fingerprint, program)
        self._sequence(rank).add(program)
        self.count += 1
        lowest = min(program.ranks)
        for other in program.ranks if rank == lowest else (rank,):
            self._pair(lowest, other)
        self._compare(rank)

    def over(self, rank: int) -> None:
        """A rank will run no more: its program has come to its end."""
        self._sequence(rank).over = True
        self._compare(rank)

    def waiting(self) -> list[tuple[Program, set[int], set[int]]]:
        """Programs that some ranks have reached and some have not, with these and those."""
        waiting: dict[str, tuple[Program, set[int], set[int]]] = {}
        for pair in self._pairs.values():
            program = self._next(pair, pair.first)[1] or self._next(pair, pair.second)[1]
            if program is not None and program.fingerprint not in waiting:
                there = {rank for rank in program.ranks if self._has_reached(rank, program)}
                if missing := program.ranks - there:
                    waiting[program.fingerprint] = program, there, set(missing)
        return list(waiting.values())

    def number(self, program: Program) -> int:
        """The place, among the programs its ranks share, of one that some have not reached."""
        return next(self._pairs_apart_at(program)).count + 1

    def passed_by(self, program: Program, instead: Mapping[int, Program]) -> None:
        """Ranks will not reach a program: they run others, which they had run before.

        Args:
            program: that they have passed by.
            instead: what each of them runs.

        """
        pairs = list(self._pairs_apart_at(program))
        pair = next((pair for pair in pairs if instead.keys() & pair.at.keys()), pairs[0])
        self._instead = dict(instead)
        place, mine = self._next(pair, pair.first)
        self.divergence = Divergence(pair.first, pair.second, pair.count, place, mine)

    def _pairs_apart_at(self, program: Program) -> Iterator[_Pair]:
        """The pairs of ranks of which one has reached a program and the other has not."""
        return (pair for pair in self._pairs.values() if self._is_next(pair, program))

    def _is_next(self, pair: _Pair, program: Program) -> bool:
        following = [self._next(pair, rank)[1] for rank in (pair.first, pair.second)]
        return any(
            other is not None and other.fingerprint == program.fingerprint for other in following
        )

    def _has_reached(self, rank: int, program: Program) -> bool:
        kept = reversed(self._sequence(rank).programs)
        return any(other.fingerprint == program.fingerprint for other in kept)

    def _sequence(self, rank: int) -> _Sequence:
        return self._sequences.setdefault(rank, _Sequence())

    def _pair(self, first: int, second: int) -> None:
        if first != second and (first, second) not in self._pairs:
            pair = _Pair(first, second)
            # What one has forgotten already cannot be compared with anything.
            pair.at = {rank: self._sequence(rank).start for rank in (first, second)}
            self._pairs[first, second] = pair
            for rank in (first, second):
                self._pairs_of.setdefault(rank, []).append(pair)

    def _compare(self, rank: int) -> None:
        for pair in self._pairs_of.get(rank, ()):
            if self.divergence is None:
                self.divergence = self._advance(pair)

    def _advance(self, pair: _Pair) -> Divergence | None:
        first, second = pair.first, pair.second
        while not self._forgotten(pair):
            (here, mine), (there, theirs) = self._next(pair, first), self._next(pair, second)
            if mine is None and theirs is None:
                return None
            waits = mine is None and not self._sequence(first).over
            if waits or (theirs is None and not self._sequence(second).over):
                return None
            if mine is None or theirs is None or mine.fingerprint != theirs.fingerprint:
                return Divergence(first, second, pair.count, here, mine)
            pair.at = {first: here + 1, second: there + 1}
            pair.count += 1
        return None

    def _forgotten(self, pair: _Pair) -> bool:
        """Whether one rank is so far behind that the two cannot be compared any more."""
        return any(pair.at[rank] < self._sequence(rank).start for rank in pair.at)

    def _next(self, pair: _Pair, rank: int) -> tuple[int, Program | None]:
        """The next program of a rank in which both of a pair take part, and its place."""
        other = pair.second if rank == pair.first else pair.first
        sequence = self._sequence(rank)
        for place in range(max(pair.at[rank], sequence.start), sequence.end):
            program = sequence.programs[place - sequence.start]
            if other in program.ranks:
                return place, program
        pair.at[rank] = sequence.end
        return sequence.end, None

    # --- both sides of a divergence ---

    def sides(self) -> list[Side]:
        """What each of the ranks concerned does where they diverge, in order of rank."""
        divergence = self.divergence
        assert divergence is not None
        first, second = divergence.first, divergence.second
        theirs = self._next(self._pairs[first, second], second)[1]
        meshes = [program.ranks for program in (divergence.program, theirs) if program is not None]
        shared = frozenset.intersection(*meshes) if meshes else frozenset()
        concerned = shared | {first, second}
        sides: dict[tuple[str, bool, bool], list[int]] = {}
        programs: dict[str, Program | None] = {}
        for rank in sorted(concerned):
            program, over = self._doing(rank, divergence)
            again = program is None and not over and rank in self._instead
            if again:
                program = self._instead[rank]
            mark = program.fingerprint if program is not None else ""
            programs.setdefault(mark, program)
            sides.setdefault((mark, over, again), []).append(rank)
        return [
            Side(tuple(ranks), programs[mark], over, again)
            for (mark, over, again), ranks in sides.items()
        ]

    def _doing(self, rank: int, divergence: Divergence) -> tuple[Program | None, bool]:
        first, theirs = divergence.first, divergence.program
        if rank == first:
            return theirs, theirs is None and self._sequence(rank).over
        pair = self._pairs.get((first, rank))
        if pair is None:
            return None, False
        self._advance(pair)
        if pair.at[first] > divergence.place:
            return theirs, False  # it agreed
        program = self._next(pair, rank)[1]
        return program, program is None and self._sequence(rank).over

    @property
    def settled(self) -> bool:
        """Whether all ranks concerned have reached the point where they diverge."""
        return all(side.program is not None or side.over for side in self.sides())

"""The programs that span processes, in the order in which each rank first ran them, compared; pure.

Two ranks that share programs have to run them in one order. Every rank is compared with the lowest
rank of each program's mesh, over the programs that both take part in, as far as both have come.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from mcjax_launch.protocol import hook_messages
from mcjax_launch.ranks import ranges, these_ranks

# So many at least, of each rank, wait for the others to come as far.
_MOST_PROGRAMS = 1024
_MOST_SHAPES = 4
_MOST_GROUPS = 8


@dataclass(frozen=True)
class Program:
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
    def told(cls, body: hook_messages.Program, ranks: Mapping[int, int]) -> "Program":
        """What a rank's hook says of a program.

        Args:
            body: its words.
            ranks: the rank that has joined as each JAX process.

        """
        processes = ranks if body.processes is None else body.processes
        taking_part = frozenset(ranks[number] for number in processes if number in ranks)
        return cls(body.name, body.fingerprint, taking_part, body.shapes, body.where)


@dataclass(frozen=True)
class Rerun:
    """A rank has run a program that it had run before.

    Args:
        look: the number of the request that made it say so.
        partners: the ranks that have to run it too before this one can have its results.

    """

    rank: int
    program: Program
    look: int
    partners: frozenset[int]

    @classmethod
    def told(cls, rank: int, body: hook_messages.Rerun, ranks: Mapping[int, int]) -> "Rerun":
        """What a rank's hook says of one; see Program.told."""
        partners = frozenset(ranks[number] for number in body.partners if number in ranks)
        return cls(rank, Program.told(body.program, ranks), body.look, partners)


def titled(name: str) -> str:
    """A program's name as JAX's users know it: jit(step)."""
    return f"jit({name[4:]})" if name.startswith("jit_") else name


@dataclass
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


@dataclass(frozen=True)
class Divergence:
    """Two ranks part: after `count` programs of both, `first` goes on to `program`, at `place`."""

    first: int
    second: int
    count: int
    place: int
    program: Program | None


@dataclass(frozen=True)
class Side:
    """What some ranks do where others do something else: a program, none any more, or not yet."""

    ranks: tuple[int, ...]
    program: Program | None
    over: bool = False
    again: bool = False  # it had run this one before


class Comparison:
    """Takes each rank's programs in order, from all ranks in any order, and compares.

    Attributes:
        divergence: the first that was found.
        told: how many programs have been told.
        reruns: what ranks have said to run again; whoever asked them takes it from here.

    """

    def __init__(self) -> None:
        self.divergence: Divergence | None = None
        self.told = 0
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
        self.told += 1
        lowest = min(program.ranks)
        for other in program.ranks if rank == lowest else (rank,):
            self._pair(lowest, other)
        self._compare(rank)

    def over(self, rank: int) -> None:
        """A rank will run no more: its program has come to its end."""
        self._sequence(rank).over = True
        self._compare(rank)

    def last(self, rank: int) -> Program | None:
        """The last program of a rank."""
        programs = self._sequence(rank).programs
        return programs[-1] if programs else None

    def waiting(self) -> list[tuple[Program, set[int], set[int]]]:
        """Programs that some ranks have come to and some not, with these and those."""
        found: dict[str, tuple[Program, set[int], set[int]]] = {}
        for pair in self._pairs.values():
            program = self._next(pair, pair.first)[1] or self._next(pair, pair.second)[1]
            if program is not None and program.fingerprint not in found:
                come = {rank for rank in program.ranks if self._has_come(rank, program)}
                if missing := program.ranks - come:
                    found[program.fingerprint] = program, come, set(missing)
        return list(found.values())

    def number(self, program: Program) -> int:
        """Which of the programs that its ranks share is one that some of them have not come to."""
        return next(self._parting(program)).count + 1

    def went_on(self, program: Program, instead: Mapping[int, Program]) -> None:
        """Ranks that have not come to a program run others that they had run before."""
        pairs = list(self._parting(program))
        pair = next((pair for pair in pairs if instead.keys() & pair.at.keys()), pairs[0])
        self._instead = dict(instead)
        place, mine = self._next(pair, pair.first)
        self.divergence = Divergence(pair.first, pair.second, pair.count, place, mine)

    def _parting(self, program: Program) -> Iterator[_Pair]:
        """Each two ranks of which one has come to a program and the other has not."""
        return (pair for pair in self._pairs.values() if self._parts(pair, program))

    def _parts(self, pair: _Pair, program: Program) -> bool:
        found = [self._next(pair, rank)[1] for rank in (pair.first, pair.second)]
        return any(one is not None and one.fingerprint == program.fingerprint for one in found)

    def _has_come(self, rank: int, program: Program) -> bool:
        kept = reversed(self._sequence(rank).programs)
        return any(one.fingerprint == program.fingerprint for one in kept)

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
        """Whether one is so far behind that nothing can be said of these two any more."""
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

    # --- the picture of a divergence ---

    def sides(self) -> list[Side]:
        """What each of the ranks concerned does where they part, in order of rank."""
        found = self.divergence
        assert found is not None
        theirs = self._next(self._pairs[found.first, found.second], found.second)[1]
        meshes = [program.ranks for program in (found.program, theirs) if program is not None]
        shared = frozenset.intersection(*meshes) if meshes else frozenset()
        concerned = shared | {found.first, found.second}
        sides: dict[tuple[str, bool, bool], list[int]] = {}
        programs: dict[str, Program | None] = {}
        for rank in sorted(concerned):
            program, over = self._doing(rank, found)
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

    def _doing(self, rank: int, found: Divergence) -> tuple[Program | None, bool]:
        if rank == found.first:
            return found.program, found.program is None and self._sequence(rank).over
        pair = self._pairs.get((found.first, rank))
        if pair is None:
            return None, False
        self._advance(pair)
        if pair.at[found.first] > found.place:
            return found.program, False  # it agreed
        program = self._next(pair, rank)[1]
        return program, program is None and self._sequence(rank).over

    @property
    def settled(self) -> bool:
        """Whether all ranks concerned have come to where they part."""
        return all(side.program is not None or side.over for side in self.sides())

    def words(self) -> list[str]:
        """The divergence for a person."""
        assert self.divergence is not None
        sides = self.sides()
        shown = _differing([side.program for side in sides if side.program is not None])
        parts: dict[str, list[Side]] = {}
        for side in sides:
            parts.setdefault(_doing_in_words(side, shown), []).append(side)
        texts = [
            f"{these_ranks(rank for side in same for rank in side.ranks)} {words}"
            for words, same in parts.items()
        ]
        lines = [f"program #{self.divergence.count + 1}: {' · '.join(texts)}"]
        for same in parts.values():
            if len(same) > 1:  # only their code differs
                groups = " · ".join(ranges(side.ranks) for side in same[:_MOST_GROUPS])
                lines.append(
                    f"but not the same one on ranks {groups}: another operation, a Python value in "
                    "the code (a seed, a setting, process_index()), its shardings or its devices"
                )
        return lines


def _doing_in_words(side: Side, shown: Collection[int]) -> str:
    program = side.program
    if program is None:
        return "had ended without it" if side.over else "not there yet"
    shapes = [program.shapes[index] for index in shown if index < len(program.shapes)]
    if left := len(program.shapes) - len(shapes):
        shapes.append(f"(and {left} more)")
    words = " ".join(filter(None, (program.where, program.title, *shapes)))
    if side.again:
        they = "they" if len(side.ranks) > 1 else "it"
        return f"went on with {words}, which {they} had run before"
    return words


def _differing(programs: Iterable[Program]) -> list[int]:
    """Which arguments to show: all, if they are few; else those whose shapes differ."""
    shapes = [program.shapes for program in programs]
    count = max(map(len, shapes), default=0)
    if count <= _MOST_SHAPES:
        return list(range(count))
    differing = [index for index in range(count) if len({s[index : index + 1] for s in shapes}) > 1]
    return (differing or list(range(count)))[:_MOST_SHAPES]

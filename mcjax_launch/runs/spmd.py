"""The comparison of the programs that span processes, in the order each rank first ran them; pure.

Two ranks that share programs have to run those that share devices in one order: threads may run
others as they like. Every rank is compared with the lowest
rank of each program's mesh, over the programs that both take part in, as far as both have got.

Programs name processes by the numbers of their backends: `jax.process_index()` is on TPUs libtpu's,
and not that of initialize(). Nothing is judged before it is known of all of a program's processes
which ranks they are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import chain

from mcjax_launch.kernel.wire import hook_messages
from mcjax_launch.kernel.wire.value import Value

# Of each rank at least so many are kept until the others have run as many.
_MOST_PROGRAMS = 1024


class RanProgram(Value):
    """A program that spans processes, as one rank ran it.

    Args:
        fingerprint: of its code and its devices; the same on all ranks, if all is well.
        ranks: that take part.
        devices: that it runs on; None for all of the job.
        shapes: of its arguments.
        where: the user's line that ran it.
        order: the first of its devices, where they are not in the order of their numbers.

    """

    name: str
    fingerprint: str
    ranks: frozenset[int]
    shapes: tuple[str, ...] = ()
    where: str = ""
    devices: frozenset[int] | None = None
    order: tuple[int, ...] = ()

    def meets(self, other: RanProgram) -> bool:
        """Whether both use the same device, so that their order matters."""
        if self.devices is None or other.devices is None:
            return True
        return not self.devices.isdisjoint(other.devices)

    @property
    def title(self) -> str:
        """Its name as JAX's users know it."""
        return titled(self.name)

    @classmethod
    def from_hook(cls, message: hook_messages.Program, ranks: frozenset[int]) -> RanProgram:
        """A program as a rank's hook reports it.

        Args:
            message: the hook's.
            ranks: that its processes are.

        """
        devices = None if message.devices is None else frozenset(message.devices)
        code = message.name, message.fingerprint
        return cls(*code, ranks, message.shapes, message.where, devices, message.order)


def titled(name: str) -> str:
    """A program's name as JAX's users know it: jit(step)."""
    return f"jit({name[4:]})" if name.startswith("jit_") else name


class Code:
    """The code of a program, as a rank that is held at it has shown it.

    Attributes:
        complete: all of it has come.
        compiled: the fingerprints of what else that rank has compiled and not run yet.

    """

    def __init__(self) -> None:
        self._parts: list[str] = []
        self.complete = False
        self.compiled: frozenset[str] = frozenset()

    @property
    def text(self) -> str:
        """StableHLO, with places."""
        return "".join(self._parts)

    def add(self, part: hook_messages.ProgramText) -> None:
        """Another part has come."""
        self._parts.append(part.text)
        self.complete = part.last
        self.compiled = frozenset(part.compiled)


class Divergence(Value):
    """Two ranks diverge: after `count` shared programs they run different ones, None for none."""

    first: int
    second: int
    count: int
    program: RanProgram | None
    theirs: RanProgram | None


class Side(Value):
    """What some ranks do where others do something else: a program, none any more, or not yet."""

    ranks: tuple[int, ...]
    program: RanProgram | None
    over: bool = False
    again: bool = False  # they had run this one before


class _Pair:
    """Two ranks, and what one has run of what both take part in, and the other has not yet.

    Args:
        first, second: the ranks.

    Attributes:
        count: how many programs both have run.
        ahead: of each rank; its programs that the other has not run.
        differs: they have diverged, or one is so far behind that they cannot be compared.

    """

    def __init__(self, first: int, second: int) -> None:
        self.first = first
        self.second = second
        self.count = 0
        self.ahead: dict[int, list[RanProgram]] = {first: [], second: []}
        self.differs = False

    def ran(self, rank: int, program: RanProgram) -> bool:
        """One of them has run a program; whether that shows that they diverge."""
        self.ahead[rank].append(program)
        if self.differs:  # what comes after that may be the same in another order
            del self.ahead[rank][_MOST_PROGRAMS:]
            return False
        mine, theirs = self.ahead[rank], self.ahead[self._other(rank)]
        # The next that the other has run on these devices: all before it both have run by now.
        other = next_of(theirs, program)
        if other is not None and other.fingerprint == program.fingerprint:
            mine.pop()
            theirs.remove(other)
            self.count += 1
        elif other is not None:
            self.differs = True
        elif len(mine) > _MOST_PROGRAMS:
            self.differs, self.ahead = True, {self.first: [], self.second: []}
            return False
        return self.differs

    def apart(self) -> tuple[RanProgram | None, RanProgram | None]:
        """What each of them, the first and the second, is the only one to have run."""
        mine, theirs = self.ahead[self.first], self.ahead[self.second]
        for program in mine:
            if (other := next_of(theirs, program)) is not None:
                return program, other
        return next(iter(mine), None), next(iter(theirs), None)

    def lacks(self, rank: int) -> bool:
        """Whether this one has not run what the other has."""
        return bool(self.ahead[self._other(rank)])

    def _other(self, rank: int) -> int:
        return self.second if rank == self.first else self.first


def next_of(programs: Iterable[RanProgram], program: RanProgram) -> RanProgram | None:
    """The first of these that runs on a device of the program's: the order of others is free."""
    return next((one for one in programs if one.meets(program)), None)


class _Arrivals:
    """Which ranks of a program's mesh have reached it, each by its own line.

    Attributes:
        there: what each of them runs.
        order: the place of each of these among all programs of all ranks.
        held: those of them that wait until they may run it.
        opened: they need not wait for the others.

    """

    def __init__(self, program: RanProgram) -> None:
        self.program = program
        self.there: dict[int, RanProgram] = {}
        self.order: dict[int, int] = {}
        self.held: set[int] = set()
        self.opened = False

    @property
    def missing(self) -> set[int]:
        return set(self.program.ranks.difference(self.there))


class _Event(Value):
    """What is to be done once it is known which ranks these processes are."""

    platform: str
    processes: tuple[int, ...]
    act: Callable[[], object]
    at: float


class ProcessRanks:
    """The rank of each process, and what waits until more of them are known, in its order."""

    def __init__(self) -> None:
        self._ranks: dict[str, dict[int, int]] = {}  # by platform and process
        self._waiting: deque[_Event] = deque()

    def told(self, rank: int, platform: str, process: int) -> None:
        """A rank is this process, by the number of its backend for this platform."""
        ranks = self._ranks.setdefault(platform, {})
        for before in [number for number, known in ranks.items() if known == rank]:
            del ranks[before]
        ranks[process] = rank

    def ranks(self, platform: str) -> Mapping[int, int]:
        """The rank of each process of which it is known."""
        return self._ranks.get(platform, {})

    @property
    def waits_since(self) -> float | None:
        """Since when the first of what waits has; None where nothing does."""
        return self._waiting[0].at if self._waiting else None

    def when_known(
        self, platform: str, processes: Collection[int], act: Callable[[], object], at: float
    ) -> None:
        """Have something done once these processes are known, and after all that came before.

        Args:
            platform: whose backend has numbered them.
            processes: their numbers.
            act: is called when `settle` finds that it may be.
            at: now.

        """
        self._waiting.append(_Event(platform, tuple(processes), act, at))

    def settle(self, may_tell: Callable[[], Collection[int]]) -> None:
        """Do what need not wait any longer.

        Args:
            may_tell: gives the ranks that may still say which processes they are.

        """
        while self._waiting:
            event = self._waiting[0]
            known = self.ranks(event.platform)
            are_known = known.keys() >= set(event.processes)
            if not are_known and set(may_tell()).difference(known.values()):
                return
            self._waiting.popleft()
            event.act()

    def others(self, ranks: Collection[int]) -> Mapping[int, int]:
        """The rank of each process where they differ, and it is known of all of these ranks."""
        for known in self._ranks.values():
            if set(known.values()) >= set(ranks) and any(n != rank for n, rank in known.items()):
                return known
        return {}


class Unequal(Value):
    """Ranks have other values of an argument than others that should have the same.

    Args:
        program: about to be run.
        argument: its number.
        groups: of ranks that have the same.

    """

    program: RanProgram
    argument: int
    groups: tuple[tuple[int, ...], ...]


class Copies:
    """Takes checksums of the arguments that all ranks of a program should have alike, once each.

    Attributes:
        unequal: the first that some have not; known better as more ranks come.

    """

    def __init__(self) -> None:
        self.unequal: Unequal | None = None
        self._known: dict[str, dict[int, tuple[str, ...]]] = {}  # by fingerprint and rank

    def came(self, rank: int, program: RanProgram, checksums: tuple[str, ...]) -> None:
        """A rank is about to run a program."""
        if not any(checksums) or self.unequal not in (None, self._about(program)):
            return
        known = self._known.setdefault(program.fingerprint, {})
        known[rank] = checksums
        for number in range(max(map(len, known.values()))):
            groups: dict[str, list[int]] = {}
            for one, sums in sorted(known.items()):
                if sums[number : number + 1] not in ((), ("",)):
                    groups.setdefault(sums[number], []).append(one)
            if len(groups) > 1:
                by_size = sorted(groups.values(), key=len, reverse=True)
                self.unequal = Unequal(program, number, tuple(map(tuple, by_size)))
                return
        if known.keys() >= program.ranks or len(self._known) > _MOST_PROGRAMS:
            del self._known[program.fingerprint]

    def _about(self, program: RanProgram) -> Unequal | None:
        found = self.unequal
        return found if found and found.program.fingerprint == program.fingerprint else None

    @property
    def settled(self) -> bool:
        """Whether all ranks of the program that are to have the same have come."""
        assert self.unequal is not None
        come = self._known[self.unequal.program.fingerprint]
        return come.keys() >= self.unequal.program.ranks


class Comparison:
    """Takes each rank's programs in order, from all ranks in any order, and compares.

    Attributes:
        divergence: the first.
        count: of all programs of all ranks so far.
        released: by fingerprint, ranks that were held at a program and may run it now; whoever
            tells them takes it from here.
        codes: of programs in which ranks diverge, by fingerprint; whoever asked for them has put
            them here.
        members: which ranks the processes of programs are.
        copies: the arguments of programs that all ranks should have alike.
        held_any: ranks have been held at programs (--verify-spmd).

    """

    def __init__(self) -> None:
        self.copies = Copies()
        self.members = ProcessRanks()
        self.divergence: Divergence | None = None
        self.count = 0
        self.held_any = False
        self.released: dict[str, set[int]] = {}
        self.codes: dict[str, Code] = {}
        self._instead: dict[int, RanProgram] = {}
        self._known: dict[RanProgram, RanProgram] = {}
        # Programs that some of their ranks have reached and some have not, by fingerprint.
        self._arrivals: dict[str, _Arrivals] = {}
        self._over: set[int] = set()
        self._pairs: dict[tuple[int, int], _Pair] = {}
        self._pairs_of: dict[int, list[_Pair]] = {}

    def known(self, program: RanProgram) -> RanProgram:
        """One object for all ranks that run a program by the same line: there may be many."""
        if len(self._known) > 2 * _MOST_PROGRAMS:
            self._known.clear()
        return self._known.setdefault(program, program)

    def ran(self, rank: int, program: RanProgram, *, held: bool = False) -> None:
        """A rank runs a program for the first time; one on others' devices is nothing to wait for.

        Args:
            rank: that runs it.
            program: the program.
            held: the rank does not run it before it is released.

        """
        self.held_any |= held
        if rank not in program.ranks:
            if held:
                self.released.setdefault(program.fingerprint, set()).add(rank)
            return
        lowest = min(program.ranks)
        for other in program.ranks if rank == lowest else (rank,):
            self._pair(lowest, other)
        arrivals = self._arrive(rank, program, held)
        for pair in self._pairs_of.get(rank, ()):
            if program.ranks.issuperset((pair.first, pair.second)):
                self._compare(pair, rank, program)
        if self.divergence is not None or self.copies.unequal is not None:
            return  # from now on arrivals show who is where
        if not arrivals.missing:
            self._arrivals.pop(program.fingerprint, None)
        if arrivals.opened or not arrivals.missing - self._late:
            self._release(arrivals)

    def release(self, program: RanProgram) -> None:
        """Let ranks run a program that some have not reached; these are not waited for any more.

        They are again when they have caught up.
        """
        if (arrivals := self._arrivals.get(program.fingerprint)) is not None:
            self._release(arrivals)

    def release_all(self) -> None:
        """Let all ranks run what they wait to run."""
        for arrivals in self._arrivals.values():
            self._release(arrivals)

    def _release(self, arrivals: _Arrivals) -> None:
        arrivals.opened = True
        if arrivals.held:
            fingerprint = arrivals.program.fingerprint
            self.released.setdefault(fingerprint, set()).update(arrivals.held)
            arrivals.held = set()

    @property
    def _late(self) -> set[int]:
        """The ranks that have not reached programs which others were allowed to run."""
        late = (arrivals.missing for arrivals in self._arrivals.values() if arrivals.opened)
        return set().union(*late)

    def over(self, rank: int) -> None:
        """A rank will run no more: its program has come to its end."""
        self._over.add(rank)
        for pair in self._pairs_of.get(rank, ()):
            if pair.lacks(rank):
                self._diverge(pair)

    def is_held(self, program: RanProgram) -> bool:
        """Whether ranks wait until they may run it."""
        arrivals = self._arrivals.get(program.fingerprint)
        return arrivals is not None and bool(arrivals.held)

    def waiting(self) -> list[tuple[RanProgram, set[int], set[int]]]:
        """Programs that some ranks have reached and some have not, with these and those."""
        waiting: list[tuple[RanProgram, set[int], set[int]]] = []
        for arrivals in self._arrivals.values():
            missing = arrivals.missing
            # Those that have not come to an earlier one are expected there first.
            if not any(p.meets(arrivals.program) and missing <= m for p, _, m in waiting):
                waiting.append((arrivals.program, set(arrivals.there), missing))
        return waiting

    def held(self) -> list[tuple[RanProgram, set[int], set[int]]]:
        """Programs at which ranks are held, with the ranks that have come and those that have not.

        In the order in which the first rank has come to each.
        """
        held = [arrivals for arrivals in self._arrivals.values() if arrivals.held]
        return [(one.program, set(one.there), one.missing) for one in held]

    def number(self, program: RanProgram) -> int:
        """The place, among the programs its ranks share, of one that some have not reached."""
        pair = next(self._pairs_apart_at(program), None)
        return self.count if pair is None else pair.count + 1

    def passed_by(self, program: RanProgram, instead: Mapping[int, RanProgram]) -> None:
        """Ranks will not reach a program: they are in others, which they had run before.

        One without a name is known by its line alone.

        Args:
            program: that they have passed by.
            instead: the one that each of them is in, as far as that is known.

        """
        pairs = list(self._pairs_apart_at(program))
        if not pairs:  # they are too far apart to be compared
            return
        pair = next((pair for pair in pairs if instead.keys() & pair.ahead.keys()), pairs[0])
        self._instead = dict(instead)
        self._diverge(pair)

    def is_behind(self, rank: int, program: RanProgram) -> bool:
        """Whether a rank has run nothing that those who have reached a program have not."""
        pairs = [pair for pair in self._pairs_apart_at(program) if rank in pair.ahead]
        return bool(pairs) and not any(pair.ahead[rank] for pair in pairs)

    def _pairs_apart_at(self, program: RanProgram) -> Iterator[_Pair]:
        """The pairs of ranks of which one has reached a program and the other has not."""
        for pair in self._pairs.values():
            if any(one.fingerprint == program.fingerprint for one in chain(*pair.ahead.values())):
                yield pair

    def _arrive(self, rank: int, program: RanProgram, held: bool) -> _Arrivals:
        arrivals = self._arrivals.setdefault(program.fingerprint, _Arrivals(program))
        self.count += 1
        arrivals.there[rank], arrivals.order[rank] = program, self.count
        if held:
            arrivals.held.add(rank)
        if len(self._arrivals) > _MOST_PROGRAMS:
            del self._arrivals[next(iter(self._arrivals))]
        return arrivals

    def _compare(self, pair: _Pair, rank: int, program: RanProgram) -> None:
        if pair.ran(rank, program) or any(map(pair.lacks, self._over.intersection(pair.ahead))):
            self._diverge(pair)

    def _pair(self, first: int, second: int) -> None:
        if first != second and (first, second) not in self._pairs:
            pair = self._pairs[first, second] = _Pair(first, second)
            for rank, other in ((first, second), (second, first)):
                pair.ahead[rank] = self._ahead(rank, other)
                self._pairs_of.setdefault(rank, []).append(pair)

    def _ahead(self, rank: int, other: int) -> list[RanProgram]:
        """What a rank has run, in its order, and another one has not that takes part in it."""
        ahead = [
            arrivals
            for arrivals in self._arrivals.values()
            if rank in arrivals.there and other in arrivals.missing
        ]
        return [one.there[rank] for one in sorted(ahead, key=lambda one: one.order[rank])]

    def _diverge(self, pair: _Pair) -> None:
        pair.differs = True
        if self.divergence is None:
            self.divergence = Divergence(pair.first, pair.second, pair.count, *pair.apart())

    # --- both sides of a divergence ---

    def sides(self) -> list[Side]:
        """What each of the ranks concerned does where they diverge, in order of rank."""
        divergence = self.divergence
        assert divergence is not None
        first, second = divergence.first, divergence.second
        both = divergence.program, divergence.theirs
        meshes = [program.ranks for program in both if program is not None]
        shared = frozenset.intersection(*meshes) if meshes else frozenset()
        sides: dict[tuple[RanProgram | None, bool, bool], list[int]] = {}
        for rank in sorted(shared | {first, second}):
            program = self._doing(rank, divergence)
            over = program is None and rank in self._over
            again = program is None and not over and rank in self._instead
            if again:
                program = self._instead[rank]
            sides.setdefault((program, over, again), []).append(rank)
        return [Side(tuple(ranks), *what) for what, ranks in sides.items()]

    def _doing(self, rank: int, divergence: Divergence) -> RanProgram | None:
        theirs = divergence.program
        if rank == divergence.first:
            return theirs
        if rank == divergence.second:
            return divergence.theirs
        pair = self._pairs.get((divergence.first, rank))
        if theirs is None:
            own = pair.ahead[rank] if pair is not None else []
            return next(iter(own), None)
        if pair is not None and theirs in pair.ahead[pair.first]:
            return next_of(pair.ahead[rank], theirs)
        arrivals = self._arrivals.get(theirs.fingerprint)
        return theirs if arrivals is None else arrivals.there.get(rank)

    @property
    def settled(self) -> bool:
        """Whether all ranks concerned have reached the point where they diverge."""
        return all(side.program is not None or side.over for side in self.sides())

    @property
    def shown(self) -> bool:
        """Whether the code of all programs at which ranks are held where they diverge has come."""
        held = [
            side.program for side in self.sides() if side.program and self.is_held(side.program)
        ]
        codes = [self.codes.get(program.fingerprint) for program in held]
        return all(code is not None and code.complete for code in codes)

    def comes_to(self, rank: int, program: RanProgram) -> int | None:
        """So many programs after the one in which it diverges a rank runs this one, as is known.

        0: it has compiled it, and nothing more is known. None: nothing is known of that.
        """
        assert self.divergence is not None
        first = self.divergence.first
        pair = self._pairs.get((min(first, rank), max(first, rank)))
        own = pair.ahead[rank] if pair is not None else []
        for number, other in enumerate(own):
            if number and other.fingerprint == program.fingerprint:
                return number
        codes = [self.codes.get(one.fingerprint) for one in own[:1]]
        return 0 if any(code and program.fingerprint in code.compiled for code in codes) else None

"""The comparison of the programs that span processes, in the order each rank first ran them; pure.

Two ranks that share programs have to run those that share devices in one order: threads may run
others as they like. So ranks diverge if one comes to a program before it has run another one that
a rank of both has run before. Only programs that some of their ranks have not reached are kept.

Programs name processes by the numbers of their backends: `jax.process_index()` is on TPUs libtpu's,
and not that of initialize(). Nothing is judged before it is known of all of a program's processes
which ranks they are.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping

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


class _Reached:
    """A program that some of its ranks have reached, and some may not have.

    Attributes:
        there: what each of these runs, by its own line.
        order: the place of each arrival among all of them.
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

    def lacks(self, rank: int) -> bool:
        """Return whether a rank takes part, and has not reached it."""
        return rank in self.program.ranks and rank not in self.there

    def was_before(self, rank: int, other: _Reached) -> bool:
        """Return whether a rank that takes part in both has reached this one first."""
        if rank not in other.program.ranks or rank not in self.there:
            return False
        return other.order.get(rank, math.inf) > self.order[rank]


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
        self._reached: dict[str, _Reached] = {}  # by fingerprint
        self._run_by_all: Counter[frozenset[int]] = Counter()  # how many programs, by their ranks
        self._over: set[int] = set()
        self._apart: set[int] = set()  # ranks that are too far behind to be compared

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
        reached = self._arrive(rank, program, held)
        if self.divergence is None:
            self._compare(rank, reached)
        if self.divergence is not None or self.copies.unequal is not None:
            return  # from now on arrivals show who is where
        if not reached.missing:
            self._run_by_all[program.ranks] += 1
            self._reached.pop(program.fingerprint, None)
        if reached.opened or not reached.missing - self._late:
            self._release(reached)

    def release(self, program: RanProgram) -> None:
        """Let ranks run a program that some have not reached; these are not waited for any more.

        They are again when they have caught up.
        """
        if (reached := self._reached.get(program.fingerprint)) is not None:
            self._release(reached)

    def release_all(self) -> None:
        """Let all ranks run what they wait to run."""
        for reached in self._reached.values():
            self._release(reached)

    def _release(self, reached: _Reached) -> None:
        reached.opened = True
        if reached.held:
            fingerprint = reached.program.fingerprint
            self.released.setdefault(fingerprint, set()).update(reached.held)
            reached.held = set()

    @property
    def _late(self) -> set[int]:
        """The ranks that have not reached programs which others were allowed to run."""
        late = (reached.missing for reached in self._reached.values() if reached.opened)
        return set().union(*late)

    def over(self, rank: int) -> None:
        """A rank will run no more: its program has come to its end."""
        self._over.add(rank)
        for reached in self._reached.values():
            if reached.lacks(rank):
                self._diverge(min(reached.there), rank, reached)

    def is_held(self, program: RanProgram) -> bool:
        """Whether ranks wait until they may run it."""
        reached = self._reached.get(program.fingerprint)
        return reached is not None and bool(reached.held)

    def waiting(self) -> list[tuple[RanProgram, set[int], set[int]]]:
        """Programs that some ranks have reached and some have not, with these and those."""
        waiting: list[tuple[RanProgram, set[int], set[int]]] = []
        for reached in self._reached.values():
            missing = reached.missing
            # Those that have not come to an earlier one are expected there first.
            if not any(p.meets(reached.program) and missing <= m for p, _, m in waiting):
                waiting.append((reached.program, set(reached.there), missing))
        return waiting

    def held(self) -> list[tuple[RanProgram, set[int], set[int]]]:
        """Programs at which ranks are held, with the ranks that have come and those that have not.

        In the order in which the first rank has come to each.
        """
        held = [reached for reached in self._reached.values() if reached.held]
        return [(one.program, set(one.there), one.missing) for one in held]

    def number(self, program: RanProgram) -> int:
        """The place, among the programs its ranks share, of one that some have not reached."""
        reached = self._reached.get(program.fingerprint)
        if reached is None or not reached.missing:
            return self.count
        return self._shared_before(reached, min(reached.there), min(reached.missing)) + 1

    def skipped(self, program: RanProgram, instead: Mapping[int, RanProgram]) -> None:
        """Ranks will not reach a program: they are in others, which they had run before.

        One without a name is known by its line alone.

        Args:
            program: that they have passed by.
            instead: the one that each of them is in, as far as that is known.

        """
        reached = self._reached.get(program.fingerprint)
        if reached is not None and (missing := reached.missing):
            self._instead = dict(instead)
            self._diverge(min(reached.there), min(missing & instead.keys() or missing), reached)

    def is_behind(self, rank: int, program: RanProgram) -> bool:
        """Whether a rank has run nothing that those who have reached a program have not."""
        reached = self._reached.get(program.fingerprint)
        others = () if reached is None else reached.there
        return bool(others) and not any(
            rank in one.there and any(map(one.lacks, others)) for one in self._reached.values()
        )

    def _arrive(self, rank: int, program: RanProgram, held: bool) -> _Reached:
        reached = self._reached.setdefault(program.fingerprint, _Reached(program))
        self.count += 1
        reached.there[rank], reached.order[rank] = program, self.count
        if held:
            reached.held.add(rank)
        if len(self._reached) > _MOST_PROGRAMS:
            self._apart |= self._reached.pop(next(iter(self._reached))).missing
        return reached

    def _compare(self, rank: int, reached: _Reached) -> None:
        """Find a program that a rank should have reached before the one to which it comes now."""
        for other in self._reached.values():
            if other.lacks(rank) and other.program.meets(reached.program):
                # As long as none diverge, any rank of both shows the order of all.
                first = next((one for one in other.there if one in reached.program.ranks), None)
                if first is not None and other.was_before(first, reached):
                    self._diverge(first, rank, other, reached)
                    return
        if self._over and (gone := self._over & reached.missing):
            self._diverge(rank, min(gone), reached)

    def _diverge(
        self, first: int, second: int, reached: _Reached, theirs: _Reached | None = None
    ) -> None:
        if self.divergence is None and self._apart.isdisjoint((first, second)):
            programs = reached.there[first], theirs.there[second] if theirs is not None else None
            count = self._shared_before(reached, first, second)
            self.divergence = Divergence(first, second, count, *programs)

    def _shared_before(self, reached: _Reached, first: int, second: int) -> int:
        """How many programs two ranks have both run when the first comes to this one."""
        both = {first, second}
        done = sum(count for ranks, count in self._run_by_all.items() if both <= ranks)
        return done + sum(
            both <= one.there.keys() and one.order[first] < reached.order[first]
            for one in self._reached.values()
        )

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
        """What a rank does where these two diverge: its first program that one of them lacks."""
        pair = divergence.first, divergence.second
        both = [divergence.program, divergence.theirs]
        if rank in pair:
            return both[pair.index(rank)]
        apart = {program.fingerprint: program for program in both if program is not None}
        own = [
            one
            for fingerprint, one in self._reached.items()
            if rank in one.there
            and any(map(one.program.meets, apart.values()))
            and (fingerprint in apart or any(map(one.lacks, pair)))
        ]
        first = min(own, key=lambda reached: reached.order[rank], default=None)
        return None if first is None else first.there[rank]

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

    def also_runs(self, rank: int, program: RanProgram) -> bool:
        """Whether a rank that runs another program where it diverges runs this one as well."""
        reached = self._reached.get(program.fingerprint)
        own = next((side.program for side in self.sides() if rank in side.ranks), None)
        code = self.codes.get(own.fingerprint) if own is not None else None
        compiled = code is not None and program.fingerprint in code.compiled
        return compiled or (reached is not None and rank in reached.there)

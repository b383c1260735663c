"""Compare the programs that span processes, in the order in which each rank first ran them; pure.

Two ranks that share programs must run those that share devices in the same order; threads may run
all other programs in any order. So ranks diverge if one reaches a program before an earlier one
that a rank of both has run. Only programs that some of their ranks have not reached are kept.

Programs name processes by the numbers of their backends: on TPUs `jax.process_index()` is libtpu's
number, not that of initialize(). A program is compared only when the ranks of all its processes are
known.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping

from mcjax_launch.kernel.wire import hook_messages
from mcjax_launch.kernel.wire.value import Value

# Unfinished programs to keep: ranks may run at least this many ahead of the others.
_MOST_PROGRAMS = 1024


class RanProgram(Value):
    """A program that spans processes, as one rank ran it.

    Args:
        fingerprint: fingerprint of its code and its devices; the same on all ranks, unless they
            diverge.
        ranks: the ranks that take part.
        devices: ids of the devices that it runs on; None for all of the job.
        shapes: the shapes of its arguments.
        where: the user's line that ran it.
        order: the ids of its first devices, if they are not in ascending order; else empty.

    """

    name: str
    fingerprint: str
    ranks: frozenset[int]
    shapes: tuple[str, ...] = ()
    where: str = ""
    devices: frozenset[int] | None = None
    order: tuple[int, ...] = ()

    def meets(self, other: RanProgram) -> bool:
        """Return whether both programs use a common device, so that their order matters."""
        if self.devices is None or other.devices is None:
            return True
        return not self.devices.isdisjoint(other.devices)

    @property
    def title(self) -> str:
        """Name of the program as JAX's users know it."""
        return titled(self.name)

    @classmethod
    def from_hook(cls, message: hook_messages.Program, ranks: frozenset[int]) -> RanProgram:
        """Return a program as a rank's hook reports it.

        Args:
            message: the message of the hook.
            ranks: the ranks of the program's processes.

        """
        devices = None if message.devices is None else frozenset(message.devices)
        code = message.name, message.fingerprint
        return cls(*code, ranks, message.shapes, message.where, devices, message.order)


def titled(name: str) -> str:
    """Return a program's name as JAX's users know it, such as `jit(step)`."""
    return f"jit({name[4:]})" if name.startswith("jit_") else name


class ProgramCode:
    """The code of a program, sent in parts by a rank that is held at it.

    Attributes:
        complete: all parts have arrived.
        compiled: fingerprints of the programs that the rank has compiled and not run yet.

    """

    def __init__(self) -> None:
        self._parts: list[str] = []
        self.complete = False
        self.compiled: frozenset[str] = frozenset()

    @property
    def text(self) -> str:
        """The program in StableHLO, with source locations."""
        return "".join(self._parts)

    def add(self, part: hook_messages.ProgramText) -> None:
        """Append a part of the code."""
        self._parts.append(part.text)
        self.complete = part.last
        self.compiled = frozenset(part.compiled)


class Divergence(Value):
    """Two ranks that run different programs after `count` shared programs.

    Args:
        program: the first rank's next program; None if this rank runs none any more.
        theirs: the second rank's next program; None if this rank runs none any more, or if it is
            unknown.

    """

    first: int
    second: int
    count: int
    program: RanProgram | None
    theirs: RanProgram | None


class DivergedGroup(Value):
    """A group of ranks that do the same where ranks diverge.

    Args:
        program: the program that they run; None if they run none any more, or none yet.
        over: their programs have ended.
        again: they had run this program before.

    """

    ranks: tuple[int, ...]
    program: RanProgram | None
    over: bool = False
    again: bool = False  # they had run this one before


class _Reached:
    """A program that some of its ranks have reached, and others may not have.

    Attributes:
        there: by rank, the program as that rank runs it, with the rank's own line.
        order: by rank, the position of its arrival among all arrivals of all ranks.
        held: the ranks that wait until they may run the program.
        opened: ranks that reach the program need not wait for the others.

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
        """Return whether a rank takes part and has not reached the program."""
        return rank in self.program.ranks and rank not in self.there

    def was_before(self, rank: int, other: _Reached) -> bool:
        """Return whether a rank of both programs reached this program before the other program."""
        if rank not in other.program.ranks or rank not in self.there:
            return False
        return other.order.get(rank, math.inf) > self.order[rank]


class _Deferred(Value):
    """An action that waits until the ranks of some processes are known."""

    platform: str
    processes: tuple[int, ...]
    act: Callable[[], object]
    at: float


class ProcessRanks:
    """The rank of each process, and the actions that wait until more are known.

    Actions run in the order in which they were added.
    """

    def __init__(self) -> None:
        self._ranks: dict[str, dict[int, int]] = {}  # by platform and process
        self._deferred: deque[_Deferred] = deque()

    def record(self, rank: int, platform: str, process: int) -> None:
        """Record which rank a process is, by the number of its backend for a platform."""
        ranks = self._ranks.setdefault(platform, {})
        for before in [number for number, known in ranks.items() if known == rank]:
            del ranks[before]
        ranks[process] = rank

    def ranks(self, platform: str) -> Mapping[int, int]:
        """Return the rank of each process of a platform, as far as they are known."""
        return self._ranks.get(platform, {})

    @property
    def deferred_since(self) -> float | None:
        """Time at which the oldest deferred action was added; None if there is none."""
        return self._deferred[0].at if self._deferred else None

    def defer(
        self, platform: str, processes: Collection[int], act: Callable[[], object], at: float
    ) -> None:
        """Run an action once these processes are known, after all earlier actions.

        Args:
            platform: the platform whose backend has numbered the processes.
            processes: the numbers of the processes.
            act: the action, called by `run_known`.
            at: now, in time.monotonic's seconds.

        """
        self._deferred.append(_Deferred(platform, tuple(processes), act, at))

    def run_known(self, may_report: Callable[[], Collection[int]]) -> None:
        """Run all actions that need not wait any longer.

        Args:
            may_report: returns the ranks that may still report which processes they are.

        """
        while self._deferred:
            deferred = self._deferred[0]
            known = self.ranks(deferred.platform)
            are_known = known.keys() >= set(deferred.processes)
            if not are_known and set(may_report()).difference(known.values()):
                return
            self._deferred.popleft()
            deferred.act()

    def renumbered(self, ranks: Collection[int]) -> Mapping[int, int]:
        """Return the rank of each process on a platform that numbers them differently.

        Empty if there is no such platform, or if some of these ranks are unknown on it.
        """
        for known in self._ranks.values():
            if set(known.values()) >= set(ranks) and any(n != rank for n, rank in known.items()):
                return known
        return {}


class Unequal(Value):
    """Argument that should be the same on all ranks, and is not.

    Args:
        program: the program that is about to run.
        argument: the number of the argument, from 0.
        groups: the ranks that have the same value, the largest group first.

    """

    program: RanProgram
    argument: int
    groups: tuple[tuple[int, ...], ...]


class ArgumentChecksums:
    """Checksums of the arguments that should be the same on all ranks of a program.

    Attributes:
        unequal: the first argument that differs; its groups grow as more ranks come.

    """

    def __init__(self) -> None:
        self.unequal: Unequal | None = None
        self._known: dict[str, dict[int, tuple[str, ...]]] = {}  # by fingerprint and rank

    def compare(self, rank: int, program: RanProgram, checksums: tuple[str, ...]) -> None:
        """Compare the checksums of a rank that is about to run a program."""
        if not any(checksums) or self.unequal not in (None, self._about(program)):
            return
        known = self._known.setdefault(program.fingerprint, {})
        known[rank] = checksums
        for number in range(max(map(len, known.values()))):
            groups: dict[str, list[int]] = {}
            for other, sums in sorted(known.items()):
                if sums[number : number + 1] not in ((), ("",)):
                    groups.setdefault(sums[number], []).append(other)
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
    def is_settled(self) -> bool:
        """True if all ranks of the program with unequal arguments have come."""
        assert self.unequal is not None
        come = self._known[self.unequal.program.fingerprint]
        return come.keys() >= self.unequal.program.ranks


class Comparison:
    """The comparison of all ranks' programs, given in each rank's order.

    Attributes:
        divergence: the first divergence found.
        count: number of programs of all ranks so far.
        released: by fingerprint, ranks that were held at a program and may run it now. The caller
            that sends the release to the ranks removes it here.
        codes: the code of programs at which ranks diverge, by fingerprint. The caller that requests
            a code puts it here.
        members: the ranks of processes.
        checksums: checksums of arguments that all ranks should have alike.
        held_any: ranks have been held at programs (--verify-spmd).

    """

    def __init__(self) -> None:
        self.checksums = ArgumentChecksums()
        self.members = ProcessRanks()
        self.divergence: Divergence | None = None
        self.count = 0
        self.held_any = False
        self.released: dict[str, set[int]] = {}
        self.codes: dict[str, ProgramCode] = {}
        self._instead: dict[int, RanProgram] = {}
        self._known: dict[RanProgram, RanProgram] = {}
        self._reached: dict[str, _Reached] = {}  # by fingerprint
        self._run_by_all: Counter[frozenset[int]] = Counter()  # how many programs, by their ranks
        self._over: set[int] = set()
        self._apart: set[int] = set()  # ranks that are too far behind to be compared

    def interned(self, program: RanProgram) -> RanProgram:
        """Return one object for all ranks that run a program by the same line, to save memory."""
        if len(self._known) > 2 * _MOST_PROGRAMS:
            self._known.clear()
        return self._known.setdefault(program, program)

    def record_run(self, rank: int, program: RanProgram, *, held: bool = False) -> None:
        """Record that a rank runs a program for the first time, and compare.

        A rank that takes no part in the program need not wait for it.

        Args:
            rank: the rank that runs it.
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
        if self.divergence is not None or self.checksums.unequal is not None:
            return  # from now on arrivals only show what each rank does
        if not reached.missing:
            self._run_by_all[program.ranks] += 1
            self._reached.pop(program.fingerprint, None)
        if reached.opened or not reached.missing - self._late:
            self._release(reached)

    def release(self, program: RanProgram) -> None:
        """Let ranks run a program without waiting for those that have not reached it.

        Later programs do not wait for those either, until they have caught up.
        """
        if (reached := self._reached.get(program.fingerprint)) is not None:
            self._release(reached)

    def release_all(self) -> None:
        """Let all ranks run the programs at which they are held."""
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
        """Ranks that have not reached programs which other ranks were allowed to run."""
        late = (reached.missing for reached in self._reached.values() if reached.opened)
        return set().union(*late)

    def record_end(self, rank: int) -> None:
        """Record that a rank's program has ended, so that it will run no more."""
        self._over.add(rank)
        for reached in self._reached.values():
            if reached.lacks(rank):
                self._diverge(min(reached.there), rank, reached)

    def is_held(self, program: RanProgram) -> bool:
        """Return whether ranks are held at a program."""
        reached = self._reached.get(program.fingerprint)
        return reached is not None and bool(reached.held)

    def unfinished(self) -> list[tuple[RanProgram, set[int], set[int]]]:
        """Return the programs that some ranks have reached and some have not.

        Each with the ranks that have reached it and the ranks that have not.
        """
        waiting: list[tuple[RanProgram, set[int], set[int]]] = []
        for reached in self._reached.values():
            missing = reached.missing
            # Ranks that miss an earlier program on these devices are expected there first.
            if not any(p.meets(reached.program) and missing <= m for p, _, m in waiting):
                waiting.append((reached.program, set(reached.there), missing))
        return waiting

    def held_programs(self) -> list[tuple[RanProgram, set[int], set[int]]]:
        """Return the programs at which ranks are held, in the order of their first arrival.

        Each with the ranks that have reached it and the ranks that have not.
        """
        held = [reached for reached in self._reached.values() if reached.held]
        return [(reached.program, set(reached.there), reached.missing) for reached in held]

    def ordinal(self, program: RanProgram) -> int:
        """Return the 1-based position of a program among those that its ranks have in common.

        If all its ranks have reached it, return the count of all programs of all ranks.
        """
        reached = self._reached.get(program.fingerprint)
        if reached is None or not reached.missing:
            return self.count
        return self._shared_before(reached, min(reached.there), min(reached.missing)) + 1

    def record_skip(self, program: RanProgram, instead: Mapping[int, RanProgram]) -> None:
        """Record that ranks will not reach a program, as they run earlier ones again.

        Args:
            program: the program that these ranks will not reach.
            instead: by rank, the program that it is in, if known; a program without a name is known
                by its line alone.

        """
        reached = self._reached.get(program.fingerprint)
        if reached is not None and (missing := reached.missing):
            self._instead = dict(instead)
            self._diverge(min(reached.there), min(missing & instead.keys() or missing), reached)

    def is_behind(self, rank: int, program: RanProgram) -> bool:
        """Return whether the ranks at a program have run all that this rank has run."""
        reached = self._reached.get(program.fingerprint)
        others = () if reached is None else reached.there
        return bool(others) and not any(
            rank in other.there and any(map(other.lacks, others))
            for other in self._reached.values()
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
        """Find a program that a rank should have reached before the one it reaches now."""
        for other in self._reached.values():
            if other.lacks(rank) and other.program.meets(reached.program):
                # As long as none diverge, any rank of both shows the order of all.
                first = next((rank for rank in other.there if rank in reached.program.ranks), None)
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
        """Count the programs that both ranks had run when the first reached this one."""
        both = {first, second}
        done = sum(count for ranks, count in self._run_by_all.items() if both <= ranks)
        return done + sum(
            both <= other.there.keys() and other.order[first] < reached.order[first]
            for other in self._reached.values()
        )

    # --- both sides of a divergence ---

    def diverged_groups(self) -> list[DivergedGroup]:
        """Return what each rank concerned does at the divergence, grouped, in order of rank."""
        divergence = self.divergence
        assert divergence is not None
        first, second = divergence.first, divergence.second
        both = divergence.program, divergence.theirs
        meshes = [program.ranks for program in both if program is not None]
        shared = frozenset.intersection(*meshes) if meshes else frozenset()
        groups: dict[tuple[RanProgram | None, bool, bool], list[int]] = {}
        for rank in sorted(shared | {first, second}):
            program = self._doing(rank, divergence)
            over = program is None and rank in self._over
            again = program is None and not over and rank in self._instead
            if again:
                program = self._instead[rank]
            groups.setdefault((program, over, again), []).append(rank)
        return [DivergedGroup(tuple(ranks), *what) for what, ranks in groups.items()]

    def _doing(self, rank: int, divergence: Divergence) -> RanProgram | None:
        """Return the program that a rank runs where these two diverge; None if unknown.

        That is the rank's first program that one of the two has not reached.
        """
        pair = divergence.first, divergence.second
        both = [divergence.program, divergence.theirs]
        if rank in pair:
            return both[pair.index(rank)]
        apart = {program.fingerprint: program for program in both if program is not None}
        own = [
            reached
            for fingerprint, reached in self._reached.items()
            if rank in reached.there
            and any(map(reached.program.meets, apart.values()))
            and (fingerprint in apart or any(map(reached.lacks, pair)))
        ]
        first = min(own, key=lambda reached: reached.order[rank], default=None)
        return None if first is None else first.there[rank]

    @property
    def is_settled(self) -> bool:
        """True if all ranks concerned have reached the point where they diverge."""
        return all(group.program is not None or group.over for group in self.diverged_groups())

    @property
    def has_code(self) -> bool:
        """True if the code of all programs has arrived at which diverged ranks are held."""
        programs = [group.program for group in self.diverged_groups() if group.program is not None]
        held = [program for program in programs if self.is_held(program)]
        codes = [self.codes.get(program.fingerprint) for program in held]
        return all(code is not None and code.complete for code in codes)

    def also_runs(self, rank: int, program: RanProgram) -> bool:
        """Return whether a rank that diverges from this program runs it as well."""
        reached = self._reached.get(program.fingerprint)
        own = next((group.program for group in self.diverged_groups() if rank in group.ranks), None)
        code = self.codes.get(own.fingerprint) if own is not None else None
        compiled = code is not None and program.fingerprint in code.compiled
        return compiled or (reached is not None and rank in reached.there)

"""Comparison of programs across processes, by the order in which each rank first ran them; pure.

All ranks must run programs that share devices in the same order; threads may run other programs in
any order. So a rank diverges if it reaches a program before another program which a rank of both
programs has run earlier. Only programs that some of their ranks have not reached are kept.

Programs name processes by the numbers of their backends: on TPUs `jax.process_index()` is libtpu's
number, not that of initialize(). A program is compared only when the ranks of all its processes are
known.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping

from mcjax_launch.wire import hook_messages
from mcjax_launch.wire.value import Value

# Unfinished programs to keep: ranks may run at least this many ahead of the others.
_MOST_PROGRAMS = 1024


class RanProgram(Value):
    """A program that spans processes, as one rank ran it.

    Args:
        name: name of the program in JAX, such as `jit_step`; "" if unknown.
        fingerprint: hash of its code and its devices; equal on all ranks unless they diverge.
        ranks: the ranks that take part.
        devices: ids of its devices; None for all devices of the job.
        shapes: shapes of its arguments.
        where: the user's line that ran it, as `file:line`.
        order: ids of its first devices, if they are not in ascending order; else empty.

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
        return format_title(self.name)

    @classmethod
    def from_hook(cls, message: hook_messages.Program, ranks: frozenset[int]) -> RanProgram:
        """Make a RanProgram from a hook's report.

        Args:
            message: the message of the hook.
            ranks: the ranks of the program's processes.

        """
        devices = None if message.devices is None else frozenset(message.devices)
        code = message.name, message.fingerprint
        return cls(*code, ranks, message.shapes, message.where, devices, message.order)


def format_title(name: str) -> str:
    """Return a program's name as JAX's users know it, such as `jit(step)`."""
    return f"jit({name[4:]})" if name.startswith("jit_") else name


class ProgramCode:
    """The code of a program, sent in parts by a rank that is held at it.

    Attributes:
        complete: True if all parts have arrived.
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
    """A divergence: two ranks that run different programs.

    Args:
        first, second: the two ranks.
        count: number of programs that both ran before.
        program: the first rank's next program.
        theirs: the second rank's next program; None if that rank has ended, or it is unknown.

    """

    first: int
    second: int
    count: int
    program: RanProgram | None
    theirs: RanProgram | None


class DivergedGroup(Value):
    """A group of ranks that do the same at the divergence.

    Args:
        ranks: the ranks of the group.
        program: the program that they run; None if they have ended, or run no program yet.
        over: True if they have ended.
        again: True if they had run `program` before.

    """

    ranks: tuple[int, ...]
    program: RanProgram | None
    over: bool = False
    again: bool = False  # they had run this one before


class _Reached:
    """A program that at least one of its ranks has reached.

    Attributes:
        there: for each rank that has reached it, the program with that rank's own line.
        order: for each such rank, the position of its arrival among all arrivals.
        held: the ranks that are held until they may run the program.
        opened: True if ranks that reach the program are not held any more.

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
        """Return whether a rank takes part in the program and has not reached it."""
        return rank in self.program.ranks and rank not in self.there

    def was_before(self, rank: int, other: _Reached) -> bool:
        """Return whether a rank takes part in `other` too, and reached this program earlier."""
        if rank not in other.program.ranks or rank not in self.there:
            return False
        return other.order.get(rank, math.inf) > self.order[rank]


class _Deferred(Value):
    """An action deferred until the ranks of some processes are known; see `ProcessRanks.defer`."""

    platform: str
    processes: tuple[int, ...]
    act: Callable[[], object]
    at: float


class ProcessRanks:
    """The rank of each JAX process, and actions deferred until ranks are known.

    Actions run in the order in which they were added.
    """

    def __init__(self) -> None:
        self._ranks: dict[str, dict[int, int]] = {}  # by platform and process
        self._deferred: deque[_Deferred] = deque()

    def record(self, rank: int, platform: str, process: int) -> None:
        """Record the rank of a process, given the process's number on a platform's backend."""
        ranks = self._ranks.setdefault(platform, {})
        for before in [number for number, known in ranks.items() if known == rank]:
            del ranks[before]
        ranks[process] = rank

    def get_ranks(self, platform: str) -> Mapping[int, int]:
        """Return the known ranks of a platform's processes, by process number."""
        return self._ranks.get(platform, {})

    @property
    def deferred_since(self) -> float | None:
        """Time of the oldest deferred action, in time.monotonic's seconds; None if none waits."""
        return self._deferred[0].at if self._deferred else None

    def defer(
        self, platform: str, processes: Collection[int], act: Callable[[], object], at: float
    ) -> None:
        """Defer an action until the ranks of these processes are known.

        Args:
            platform: the platform whose backend has numbered the processes.
            processes: the numbers of the processes.
            act: the action, called by `run_known`.
            at: current time, in time.monotonic's seconds.

        """
        self._deferred.append(_Deferred(platform, tuple(processes), act, at))

    def run_known(self, may_report: Callable[[], Collection[int]]) -> None:
        """Run deferred actions in order, up to the first that must still wait.

        Args:
            may_report: returns the ranks that may still report their process numbers.

        """
        while self._deferred:
            deferred = self._deferred[0]
            known = self.get_ranks(deferred.platform)
            are_known = known.keys() >= set(deferred.processes)
            if not are_known and set(may_report()).difference(known.values()):
                return
            self._deferred.popleft()
            deferred.act()

    def find_renumbered_ranks(self, ranks: Collection[int]) -> Mapping[int, int]:
        """Return ranks by process number, on a platform where some number is not the rank.

        Empty if there is no such platform, or if some of `ranks` are unknown on it.
        """
        for known in self._ranks.values():
            if set(known.values()) >= set(ranks) and any(n != rank for n, rank in known.items()):
                return known
        return {}


class Unequal(Value):
    """An argument that should be equal on all ranks, and is not.

    Args:
        program: the program that is about to run.
        argument: 0-based number of the argument.
        groups: groups of ranks with equal values, the largest group first.

    """

    program: RanProgram
    argument: int
    groups: tuple[tuple[int, ...], ...]


class ArgumentChecksums:
    """Checksums of the arguments that should be equal on all ranks of a program.

    Attributes:
        unequal: the first argument that differs, with all ranks so far; None if none differs.

    """

    def __init__(self) -> None:
        self.unequal: Unequal | None = None
        self._known: dict[str, dict[int, tuple[str, ...]]] = {}  # by fingerprint and rank

    def compare(self, rank: int, program: RanProgram, checksums: tuple[str, ...]) -> None:
        """Compare a rank's checksums with other ranks', and set `unequal` if one differs."""
        unequal, name = self.unequal, program.fingerprint
        if not any(checksums) or (unequal and unequal.program.fingerprint != name):
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

    @property
    def is_settled(self) -> bool:
        """True if all ranks of the program with the unequal argument have reached it."""
        assert self.unequal is not None
        come = self._known[self.unequal.program.fingerprint]
        return come.keys() >= self.unequal.program.ranks


class Comparison:
    """The comparison of all ranks' programs, reported by each rank in its own order.

    Attributes:
        divergence: the first divergence found; None if there is none.
        count: number of first runs reported, over all ranks.
        released: ranks that may run a program at which they were held, by its fingerprint. The
            caller sends the release to the ranks, and removes them here.
        codes: code of programs at which ranks diverge, by fingerprint. The caller that requests a
            code adds an empty ProgramCode.
        members: ranks of the JAX processes.
        checksums: checksums of the arguments that should be equal on all ranks.
        held_any: True if a rank has ever been held at a program (--verify-spmd).

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

    def intern_program(self, program: RanProgram) -> RanProgram:
        """Return the stored equal program, or store this program: saves memory for many ranks."""
        if len(self._known) > 2 * _MOST_PROGRAMS:
            self._known.clear()
        return self._known.setdefault(program, program)

    def record_run(self, rank: int, program: RanProgram, *, held: bool = False) -> None:
        """Record a rank's first run of a program, and compare it with other ranks' programs.

        A rank that takes no part in the program is released at once.

        Args:
            rank: the rank that runs it.
            program: the program.
            held: True if the rank is held at the program until it is released.

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
        """Release the ranks held at a program, although other ranks have not reached it.

        Later programs do not wait for these other ranks either, until they have caught up.
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
        """Ranks that have not reached a program which has been released without them."""
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

    def list_unfinished(self) -> list[tuple[RanProgram, set[int], set[int]]]:
        """Return the programs that some of their ranks have not reached, in order of arrival.

        Each program is paired with the ranks that have reached it, and the ranks that have not.
        A program is left out if an earlier one in the result uses a common device and misses the
        same ranks or more.
        """
        waiting: list[tuple[RanProgram, set[int], set[int]]] = []
        for reached in self._reached.values():
            missing = reached.missing
            # Ranks that miss an earlier program on these devices are expected there first.
            if not any(p.meets(reached.program) and missing <= m for p, _, m in waiting):
                waiting.append((reached.program, set(reached.there), missing))
        return waiting

    def list_held_programs(self) -> list[tuple[RanProgram, set[int], set[int]]]:
        """Return the programs at which ranks are held, in the order of their first arrival.

        Each program is paired with the ranks that have reached it, and the ranks that have not.
        """
        held = [reached for reached in self._reached.values() if reached.held]
        return [(reached.program, set(reached.there), reached.missing) for reached in held]

    def compute_ordinal(self, program: RanProgram) -> int:
        """Return the 1-based position of a program among those that its ranks have in common.

        If all its ranks have reached it, return the count of all programs of all ranks.
        """
        reached = self._reached.get(program.fingerprint)
        if reached is None or not reached.missing:
            return self.count
        return self._count_shared_before(reached, min(reached.there), min(reached.missing)) + 1

    def record_skip(self, program: RanProgram, instead: Mapping[int, RanProgram]) -> None:
        """Record that ranks will not reach a program, as they run earlier ones again.

        Args:
            program: the program that these ranks will not reach.
            instead: for each rank, the program that it runs instead; its name is "" if only its
                line is known.

        """
        reached = self._reached.get(program.fingerprint)
        if reached is not None and (missing := reached.missing):
            self._instead = dict(instead)
            self._diverge(min(reached.there), min(missing & instead.keys() or missing), reached)

    def is_behind(self, rank: int, program: RanProgram) -> bool:
        """Return whether a rank has run no program that ranks at `program` have yet to reach."""
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
        """Set the divergence if a rank should have reached another program before `reached`."""
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
            count = self._count_shared_before(reached, first, second)
            self.divergence = Divergence(first, second, count, *programs)

    def _count_shared_before(self, reached: _Reached, first: int, second: int) -> int:
        """Count the programs that both ranks had run when `first` reached this program."""
        both = {first, second}
        done = sum(count for ranks, count in self._run_by_all.items() if both <= ranks)
        return done + sum(
            both <= other.there.keys() and other.order[first] < reached.order[first]
            for other in self._reached.values()
        )

    # --- both sides of a divergence ---

    def group_diverged_ranks(self) -> list[DivergedGroup]:
        """Group the ranks concerned by the program that they run at the divergence."""
        divergence = self.divergence
        assert divergence is not None
        first, second = divergence.first, divergence.second
        both = divergence.program, divergence.theirs
        meshes = [program.ranks for program in both if program is not None]
        shared = frozenset.intersection(*meshes) if meshes else frozenset()
        groups: dict[tuple[RanProgram | None, bool, bool], list[int]] = {}
        for rank in sorted(shared | {first, second}):
            program = self._find_diverged_program(rank, divergence)
            over = program is None and rank in self._over
            again = program is None and not over and rank in self._instead
            if again:
                program = self._instead[rank]
            groups.setdefault((program, over, again), []).append(rank)
        return [DivergedGroup(tuple(ranks), *what) for what, ranks in groups.items()]

    def _find_diverged_program(self, rank: int, divergence: Divergence) -> RanProgram | None:
        """Return the program that a rank runs at the divergence of two ranks; None if unknown.

        That is the rank's first program that at least one of the two has not reached.
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
        return all(group.program is not None or group.over for group in self.group_diverged_ranks())

    @property
    def has_code(self) -> bool:
        """True if the code has arrived of all programs at which diverged ranks are held."""
        programs = [
            group.program for group in self.group_diverged_ranks() if group.program is not None
        ]
        held = [program for program in programs if self.is_held(program)]
        codes = [self.codes.get(program.fingerprint) for program in held]
        return all(code is not None and code.complete for code in codes)

    def also_runs(self, rank: int, program: RanProgram) -> bool:
        """Return whether a diverged rank has reached this program, or has compiled it to run."""
        reached = self._reached.get(program.fingerprint)
        own = next(
            (group.program for group in self.group_diverged_ranks() if rank in group.ranks), None
        )
        code = self.codes.get(own.fingerprint) if own is not None else None
        compiled = code is not None and program.fingerprint in code.compiled
        return compiled or (reached is not None and rank in reached.there)

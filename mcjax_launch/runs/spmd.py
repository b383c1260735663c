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

    """

    ranks: tuple[int, ...]
    program: RanProgram | None
    over: bool = False


class _Reached:
    """A program that at least one of its ranks has reached.

    Attributes:
        there: for each rank that has reached it, the program with that rank's own line.
        order: for each such rank, the position of its arrival among all arrivals.

    """

    def __init__(self, program: RanProgram) -> None:
        self.program = program
        self.there: dict[int, RanProgram] = {}
        self.order: dict[int, int] = {}

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


class Comparison:
    """The comparison of all ranks' programs, reported by each rank in its own order.

    Attributes:
        divergence: the first divergence found; None if there is none.
        count: number of first runs reported, over all ranks.
        members: ranks of the JAX processes.

    """

    def __init__(self) -> None:
        self.members = ProcessRanks()
        self.divergence: Divergence | None = None
        self.count = 0
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

    def record_run(self, rank: int, program: RanProgram) -> None:
        """Record a rank's first run of a program, and compare it with other ranks' programs."""
        if rank not in program.ranks:
            return
        reached = self._arrive(rank, program)
        if self.divergence is not None:
            return  # from now on arrivals only show what each rank does
        self._compare(rank, reached)
        if self.divergence is None and not reached.missing:
            self._run_by_all[program.ranks] += 1
            self._reached.pop(program.fingerprint, None)

    def record_end(self, rank: int) -> None:
        """Record that a rank's program has ended, so that it will run no more."""
        self._over.add(rank)
        for reached in self._reached.values():
            if reached.lacks(rank):
                self._diverge(min(reached.there), rank, reached)

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

    def _arrive(self, rank: int, program: RanProgram) -> _Reached:
        reached = self._reached.setdefault(program.fingerprint, _Reached(program))
        self.count += 1
        reached.there[rank], reached.order[rank] = program, self.count
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
        groups: dict[tuple[RanProgram | None, bool], list[int]] = {}
        for rank in sorted(shared | {first, second}):
            program = self._find_diverged_program(rank, divergence)
            over = program is None and rank in self._over
            groups.setdefault((program, over), []).append(rank)
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

    def also_runs(self, rank: int, program: RanProgram) -> bool:
        """Return whether a diverged rank has reached this program."""
        reached = self._reached.get(program.fingerprint)
        return reached is not None and rank in reached.there

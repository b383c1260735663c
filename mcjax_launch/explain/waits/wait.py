"""Wait: which ranks wait for which others; pure.

A rank waits for others where JAX blocks it, which is in a collective or at a barrier, in
initialize(), or in JAX's exit barrier. Ranks that are anywhere else have not arrived.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING

from mcjax_launch.explain.findings.compiling import IdleCompilation, find_idle_compilations
from mcjax_launch.explain.snapshots import RankSnapshot
from mcjax_launch.explain.view import View
from mcjax_launch.explain.waits.deadlock import is_suspected
from mcjax_launch.explain.waits.standstill import Standstill, find_place, find_standstill
from mcjax_launch.journal.rank_run import Stage
from mcjax_launch.ranks import group_by_key
from mcjax_launch.wire.value import Value

if TYPE_CHECKING:
    from mcjax_launch.journal.sequences import Gap

# Places in words, each with the ranks that wait there.
Places = tuple[tuple[str, tuple[int, ...]], ...]


class Cause(StrEnum):
    """Kinds of things that ranks wait for, in words; `words.py` says more about some."""

    ABSENT = "ranks that have not arrived"
    COMPILATION = "ranks whose compilations use no processor"
    OTHER_LAUNCHERS = "ranks of other launchers"
    JOINING = "one another, in initialize()"
    ONE_ANOTHER = "one another"
    CPP = "C++ code, usually a JAX program whose result was never read"
    UNKNOWN = ""  # all stand still outside JAX, or all compile


class Wait(Value):
    """A wait of some ranks for others.

    Args:
        waiting: the ranks that wait, by place, those that compile excluded.
        since: start of the longest wait, in time.monotonic's seconds.
        cause: what they wait for.
        awaited: snapshots of the ranks that have not arrived, or for which others wait to compile.
        compiling: idle compilations, in which further ranks wait.
        threads: switch counts of other threads, for which main threads wait. Such a thread surely
            waits only if a later poll finds the same count.
        gap: the program that the ranks have begun and those awaited have not; None if unknown.
        with_orbax: True if a waiting rank is in Orbax's code.
        is_deadlock: True if no main thread can go on, so that only other threads could end the
            wait.

    """

    waiting: Places
    since: float
    cause: Cause
    awaited: tuple[RankSnapshot, ...] = ()
    compiling: tuple[IdleCompilation, ...] = ()
    threads: tuple[str, ...] = ()
    gap: Gap | None = None
    with_orbax: bool = False
    is_deadlock: bool = False

    @property
    def key(self) -> tuple[str, ...]:
        """Key of the wait: waits with the same places and compilations have equal keys."""
        compiling = (f"{idle.program} {idle.where}" for idle in self.compiling)
        return (*(where for where, _ in self.waiting), *compiling)

    @property
    def late(self) -> tuple[int, ...]:
        """The ranks that have not arrived; empty if all ranks wait for one another."""
        absent = self.awaited if self.cause is Cause.ABSENT else ()
        return tuple(seen.run.process_id for seen in absent)


def find_wait(view: View) -> Wait | None:
    """Return the wait of some ranks for others; None if unknown, or if all may be well."""
    return view.compute_once(_find_wait)


def correct_wait(view: View, wait: Wait | None) -> None:
    """Replace the wait that `find_wait` returns for this view."""
    view.keep(_find_wait, wait)


def group_by_place(places: Iterable[tuple[int, str]]) -> Places:
    """Group ranks by place, the largest group first."""
    groups = group_by_key((where, rank) for rank, where in places)
    by_size = sorted(groups.items(), key=lambda group: (-len(group[1]), group[1][0]))
    return tuple((where, tuple(ranks)) for where, ranks in by_size)


def _find_wait(view: View) -> Wait | None:
    if view.positions is None:
        return None
    at = find_standstill(view.state, view.positions)
    since, others = _find_waiting_ranks(at)
    if not since:
        return _find_stall(at) or _find_wait_after_end(at)
    absent = [rank for rank in others if not _may_be_well(at, rank)]
    compile_too = any(at.ranks[rank].compiles for rank in others)
    if len(absent) < len(others) and (not absent or compile_too):
        return None  # the others will arrive
    waiting = group_by_place(
        (rank, find_place(at.ranks[rank])) for rank in since if rank not in at.compiling
    )
    compiling = tuple(find_idle_compilations(at.state)) if at.compiling else ()
    cause = Cause.ABSENT if absent else _find_cause(at, waiting)
    if cause is Cause.UNKNOWN and not compiling:
        return None
    awaited = at.compiling if cause is Cause.COMPILATION else absent
    seen = [at.ranks[rank] for rank in since]
    return Wait(
        waiting,
        min(since.values()),
        cause,
        tuple(at.ranks[rank] for rank in awaited),
        compiling,
        threads=tuple(stack.switches for stack in seen if stack.main is not None),
        gap=_find_gap(at, absent) if at.blocked and absent else None,
        with_orbax=any(frame.library == "orbax" for stack in seen for frame in stack.frames),
        is_deadlock=is_suspected(at, absent),
    )


# --- the ranks that wait, and those they wait for ---


def _find_waiting_ranks(at: Standstill) -> tuple[Mapping[int, float], list[int]]:
    """Return the start of each waiting rank's wait, and the ranks that may be awaited."""
    if since := at.blocked:
        taking_part = _find_participants(at)
        awaited = [rank for rank in at.ranks if rank in taking_part and not _has_left(at, rank)]
    elif since := _select_ranks_at(at, Stage.JOINING):
        awaited = [rank for rank, seen in at.ranks.items() if not seen.run.membership.has_called]
    else:
        since = _select_ranks_at(at, Stage.LEAVING)
        awaited = list(_select_ranks_at(at, Stage.INSIDE))
    return since, [rank for rank in awaited if rank not in since]


def _select_ranks_at(at: Standstill, stage: Stage) -> dict[int, float]:
    reached = {rank: seen.reached for rank, seen in at.ranks.items()}
    return {rank: found.since or 0.0 for rank, found in reached.items() if found.stage is stage}


def _find_participants(at: Standstill) -> Collection[int]:
    """Return the ranks of the programs that block ranks; all ranks if a program is unknown."""
    programs = [at.ranks[rank].program for rank in at.blocked]
    known = [program.ranks for program in programs if program is not None]
    return frozenset().union(*known) if len(known) == len(programs) else at.ranks


def _find_gap(at: Standstill, absent: Collection[int]) -> Gap | None:
    """Return the program in which ranks are blocked, and which the absent ones have not begun."""
    waiting = at.blocked
    if any(at.ranks[rank].awaits_ranks for rank in waiting):
        return None
    fits = (
        gap
        for gap in at.state.gaps
        if set(waiting).issubset(gap.begun) and set(absent).issubset(gap.behind)
    )
    return next(fits, None)


def _has_left(at: Standstill, rank: int) -> bool:
    """Return whether a rank has left the JAX job, or failed in a job that ends with it."""
    run = at.ranks[rank].run
    return run.membership.left or (not at.state.survives and (run.status or 0) != 0)


def _may_be_well(at: Standstill, rank: int) -> bool:
    """Return whether an absent rank may still arrive: it computes, compiles or waits too."""
    seen = at.ranks[rank]
    if rank in at.positions.computing or seen.compiles or seen.waits_for_somebody:
        return True
    if seen.in_thread is not None or (seen.may_serve and not at.blocked):
        return True
    inside = seen.reached.stage is Stage.INSIDE and rank not in at.unsure
    return inside and seen.is_blocked_by_jax


def _find_cause(at: Standstill, waiting: Places) -> Cause:
    """Return what ranks wait for if none is absent; UNKNOWN if all may be well."""
    if at.compiling and waiting:
        return Cause.COMPILATION
    if at.state.has_others:
        return Cause.OTHER_LAUNCHERS
    ranks = (rank for _, ranks in waiting for rank in ranks)
    if any(at.ranks[rank].reached.stage is Stage.JOINING for rank in ranks):
        return Cause.JOINING
    is_apart = len(waiting) > 1 and not at.positions.computing and not at.on_accelerators
    is_apart |= is_suspected(at, ())  # in different programs, maybe of one line
    return Cause.ONE_ANOTHER if at.blocked and is_apart else Cause.UNKNOWN


# --- waits outside JAX ---


def _find_stall(at: Standstill) -> Wait | None:
    """Return a wait if all ranks stand still outside JAX after a thread's error; else None."""
    still = at.positions.still
    well = any(rank not in still or _may_be_well(at, rank) for rank in at.running)
    if not at.has_unhandled_error or at.on_accelerators or well:
        return None
    places = group_by_place((rank, at.ranks[rank].position_with_threads) for rank in at.running)
    return Wait(places, min(still[rank] for rank in at.running), Cause.UNKNOWN)


def _find_wait_after_end(at: Standstill) -> Wait | None:
    """Return a wait if all running ranks stand still after Python's end; else None."""
    still, over = at.positions.still, at.running
    if not over or not all(rank in still and at.ranks[rank].is_over for rank in over):
        return None
    place = "after Python's end", tuple(over)
    return Wait((place,), min(still[rank] for rank in over), Cause.CPP)

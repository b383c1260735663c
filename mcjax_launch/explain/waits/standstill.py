"""The ranks at one moment: which of them JAX blocks, and since when; pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from mcjax_launch.explain.snapshots import RankSnapshot, make_snapshots
from mcjax_launch.explain.view import Positions
from mcjax_launch.journal.rank_run import Stage
from mcjax_launch.journal.state import RunState
from mcjax_launch.wire.value import Value


class Standstill(Value):
    """The ranks at a moment at which some of them stand still.

    Args:
        state: state of the run.
        positions: positions of the ranks.
        ranks: snapshot of each rank, by its main thread or by the thread that this one waits for.
        compiling: ranks whose compilations use no processor.
        blocked: start of the wait of each rank that JAX blocks, the compiling ranks included.
        unsure: ranks that may wait for a lock in the user's code rather than in JAX.

    """

    state: RunState
    positions: Positions
    ranks: Mapping[int, RankSnapshot]
    compiling: Collection[int]
    blocked: Mapping[int, float]
    unsure: Collection[int]

    @property
    def on_accelerators(self) -> bool:
        """True if ranks run on accelerators, where a main thread may spin, or run in C."""
        return any(seen.run.compilations.on_accelerator for seen in self.ranks.values())

    @property
    def has_unhandled_error(self) -> bool:
        """True if an unhandled exception has ended a thread, for which main threads may wait."""
        return any(seen.run.unhandled_errors for seen in self.ranks.values())

    @property
    def running(self) -> list[int]:
        """The ranks whose processes have not ended."""
        return [rank for rank, seen in self.ranks.items() if not seen.run.is_gone]


def find_place(seen: RankSnapshot) -> str:
    """Return the place where a rank waits, in words."""
    return str(seen.reached) if seen.reached.waits_for_others else seen.blocked_at


def find_standstill(state: RunState, positions: Positions) -> Standstill:
    """Find the ranks that JAX blocks, in their main threads or in threads these wait for."""
    main = {rank: RankSnapshot(run) for rank, run in state.ranks.items()}
    main |= make_snapshots(state, positions.stacks)
    # The thread for which a main thread waits may be what waits for other ranks.
    threads = {rank: seen.in_thread or seen for rank, seen in main.items()}
    sure = {rank: seen if seen.awaits_ranks else main[rank] for rank, seen in threads.items()}
    found = _find_blocked(state, positions, sure)
    if (found.has_unhandled_error or not found.blocked) and not found.on_accelerators:
        return _find_blocked(state, positions, threads)
    return found


def _find_blocked(
    state: RunState, positions: Positions, ranks: Mapping[int, RankSnapshot]
) -> Standstill:
    """Find the ranks that JAX blocks, by the given snapshots."""
    idle = state.idle_compilations
    inside = [rank for rank, seen in ranks.items() if seen.reached.stage is Stage.INSIDE]
    compiling = {rank: idle[rank] for rank in inside if rank in idle}
    blocked = {
        rank: since
        for rank, since in {**positions.idle_since, **positions.still}.items()
        if rank not in positions.computing
        and _is_blocked(ranks[rank], polls=rank in positions.polling)
    } | compiling
    found = Standstill(state, positions, ranks, compiling, blocked, ())
    unsure = () if found.on_accelerators else _find_unsure_ranks(found)
    sure = {rank: since for rank, since in blocked.items() if rank not in unsure}
    return found.copy_with(blocked=sure, unsure=unsure)


def _is_blocked(seen: RankSnapshot, *, polls: bool) -> bool:
    if seen.reached.stage is not Stage.INSIDE or seen.run.compilations.under_way:
        return False
    return seen.is_blocked_by_jax or (polls and seen.sleeps)


def _find_unsure_ranks(at: Standstill) -> Collection[int]:
    """Return blocked ranks that may wait for a lock in the user's code.

    If some ranks surely wait in JAX, these are the ranks that wait at other places.
    """
    sure = {rank for rank in at.blocked if at.ranks[rank].is_surely_in_jax}
    places = {find_place(at.ranks[rank]) for rank in sure}
    others = at.blocked.keys() - set(at.compiling)
    return {rank for rank in others if sure and find_place(at.ranks[rank]) not in places}

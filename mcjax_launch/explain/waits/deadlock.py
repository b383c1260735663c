"""Deadlock: whether a wait lasts for ever; pure. docs/failures.md has the table.

Main threads decide whether a deadlock is suspected. It is certain if no other thread may end it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from mcjax_launch.explain.snapshots import make_snapshots
from mcjax_launch.explain.waits.standstill import Standstill
from mcjax_launch.journal.facts import Stack
from mcjax_launch.journal.state import RunState

#: The flag that sets XLA's timeout of collectives on CPU.
TIMEOUT_FLAG = "--xla_cpu_collective_timeout_seconds="


def is_suspected(at: Standstill, absent: Sequence[int]) -> bool:
    """Return whether each rank has finished, or waits for an absent rank that has finished.

    Or none is absent, and all are in programs whose order differs.
    """
    calls = [seen.run.membership.call for seen in at.ranks.values()]
    may_go_on = any(call is not None and call.recoverable for call in calls)
    if at.state.survives or may_go_on or at.state.has_others:
        return False
    if not absent:
        return _are_in_other_programs(at)
    never_sent = absent if _may_collectives_last(at, absent) else ()
    return all(_has_finished(at, rank) for rank in absent) and all(
        _has_finished(at, rank) or _is_stuck(at, rank, never_sent) for rank in at.running
    )


def may_act(state: RunState, stacks: Iterable[Stack]) -> bool:
    """Return whether a running rank has other threads that may still end the wait.

    Args:
        state: state of the run.
        stacks: stacks of all threads of the ranks, now.

    """
    seen = make_snapshots(state, stacks)
    return any(run.process_id not in seen or seen[run.process_id].may_act for run in state.running)


def lacks_collective_timeout(state: RunState) -> bool:
    """Return whether ranks run on CPU and none is known to set XLA's collective timeout."""
    if all(run.compilations.platform != "cpu" for run in state.running):
        return False
    calls = (run.membership.call for run in state.ranks.values())
    settings = (call.settings for call in calls if call is not None and call.settings)
    return all(TIMEOUT_FLAG not in setting.get("XLA_FLAGS", "") for setting in settings)


def _may_collectives_last(at: Standstill, absent: Sequence[int]) -> bool:
    """Return whether a collective with the absent ranks lasts for ever.

    False on accelerators, whose work cannot be observed, and if a timeout of JAX ends it.
    """
    known = at.state.hosts == 1 or all(_has_run_less(at, rank) for rank in absent)
    return known and not at.on_accelerators and lacks_collective_timeout(at.state)


def _are_in_other_programs(at: Standstill) -> bool:
    """Return whether all ranks wait in programs, after those of a mesh have differed."""
    if not at.state.differs or at.on_accelerators:
        return False
    return lacks_collective_timeout(at.state) and all(
        rank in at.blocked and rank not in at.compiling and at.ranks[rank].is_in_some_program
        for rank in at.running
    )


def _is_behind(at: Standstill, rank: int, waiting: int | None = None) -> bool:
    """Return whether a rank has not begun a program that others, or this one, have begun."""
    return any(
        rank in gap.behind and (waiting is None or waiting in gap.begun) for gap in at.state.gaps
    )


def _has_run_less(at: Standstill, rank: int) -> bool:
    """Return whether a rank has exited, or skipped a program that others have run.

    Any other rank may have sent its data before it finished, and the network may have failed.
    """
    return at.ranks[rank].run.status == 0 or _is_behind(at, rank)


def _has_finished(at: Standstill, rank: int) -> bool:
    """Return whether a rank exited with 0 or stands still in JAX's exit barrier."""
    seen, positions = at.ranks[rank], at.positions
    stands = rank in positions.still and rank not in positions.computing
    return seen.run.status == 0 or (stands and seen.is_in_exit_barrier)


def _is_stuck(at: Standstill, rank: int, absent: Collection[int]) -> bool:
    """Return whether a rank surely waits at a barrier, or in a collective with absent ranks."""
    if rank not in at.blocked or rank in at.compiling:
        return False
    seen = at.ranks[rank]
    if seen.is_in_some_program and any(_is_behind(at, other, rank) for other in absent):
        return True
    ranks = seen.find_certain_collective(frozenset(at.ranks))
    return seen.awaits_all_ranks or not ranks.isdisjoint(absent)

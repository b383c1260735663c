"""A rule on a rank that joins much later than all others."""

from __future__ import annotations

from collections.abc import Iterator

from mcjax_launch.explain.announcer import AFTER_S
from mcjax_launch.explain.view import View
from mcjax_launch.journal.facts import Finding
from mcjax_launch.wording import format_rough_duration

# Late means this many times later than the spread of the other ranks' calls.
_MUCH = 3


def joined_late(view: View) -> Iterator[Finding]:
    """Find a rank that called initialize() long after all other ranks, and its position before."""
    # Later programs of a rank have their own times.
    runs = [run for run in view.runs if not run.membership.turn]
    calls = ((run.membership.joining_at, run.process_id) for run in runs)
    called = sorted((at, rank) for at, rank in calls if at is not None)
    if len(called) < len(view.runs) or len(called) < 2:
        return
    (first, _), (before, _), (last, rank) = called[0], called[-2], called[-1]
    if last - before < max(AFTER_S, _MUCH * (before - first)):
        return
    where = view.state.ranks[rank].position_before_call
    doing = f"; it was {where}" if where else ""
    after = format_rough_duration(last - before)
    words = f"called initialize() {after} after all the others{doing}"
    yield Finding("joined late", f"{view.format_ranks([rank])} {words}", (rank,))

"""Rules on ranks that come late to most runs of a program, so that others wait; pure."""

from __future__ import annotations

from collections.abc import Iterator

from mcjax_launch.explain.view import View
from mcjax_launch.journal.arrivals import MOST_SLOW, SlowRank
from mcjax_launch.journal.facts import Finding
from mcjax_launch.journal.sequences import ProgramNames


def is_slow(view: View) -> Iterator[Finding]:
    """Find ranks that came late to most runs of a program for two minutes."""
    if (sequences := view.state.sequences) is not None:
        for mesh in sequences.meshes.values():
            for rank, slow in mesh.arrivals.slow.items():
                yield Finding(("slow", rank), describe_slow_rank(slow, sequences.names), (rank,))


def was_slow(view: View) -> Iterator[Finding]:
    """Find ranks that came late to most runs of a program, or for some minutes."""
    if (sequences := view.state.sequences) is not None:
        for mesh in sequences.meshes.values():
            whole = {slow.rank: slow for slow in mesh.arrivals.find_slow()}
            for rank, slow in list({**mesh.arrivals.slow, **whole}.items())[:MOST_SLOW]:
                words = describe_slow_rank(slow, sequences.names, for_a_time=rank not in whole)
                yield Finding(("was slow", rank), words, (rank,))


def describe_slow_rank(slow: SlowRank, names: ProgramNames, *, for_a_time: bool = False) -> str:
    """Describe a slow rank in words; `for_a_time`: slow in a part of the run only."""
    runs = f"runs of {names[slow.program]}" if slow.program else "programs"
    words = (
        f"rank {slow.rank} came late to {slow.share:.0%} of {slow.runs:,} {runs}"
        f"{' for a time' if for_a_time else ''}, by {_format_seconds(slow.behind_s)}: "
        f"the others waited {slow.waited:.0%} of the time for it"
    )
    return words.replace("%", " %")


def _format_seconds(seconds: float) -> str:
    return f"{seconds * 1e3:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"

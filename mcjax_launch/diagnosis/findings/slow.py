"""Rules on ranks that make the others wait, by polled positions of main threads; pure."""

from __future__ import annotations

from collections.abc import Iterator

from mcjax_launch.diagnosis.view import Finding, View
from mcjax_launch.runs.polls import MOST_SLOW, SlowRank, find_slow_ranks


def is_slow(view: View) -> Iterator[Finding]:
    """Find ranks for which the other ranks waited most of the time in recent polls."""
    for rank, slow in view.state.polls.slow.items() if view.state.polls is not None else ():
        yield Finding(("slow", rank), describe_slow_rank(slow), (rank,))


def was_slow(view: View) -> Iterator[Finding]:
    """Find ranks for which the other ranks waited most of the run, or of some minutes of it."""
    if (polls := view.state.polls) is None:
        return
    whole = {slow.rank: slow for slow in find_slow_ranks(polls.kept)}
    for rank, slow in list({**polls.slow, **whole}.items())[:MOST_SLOW]:
        yield Finding(
            ("was slow", rank), describe_slow_rank(slow, for_a_time=rank not in whole), (rank,)
        )


def describe_slow_rank(slow: SlowRank, *, for_a_time: bool = False) -> str:
    """Describe a slow rank in words; `for_a_time`: slow in a part of the run only."""
    is_slow, the_time = (
        ("was slow for a time", "that time") if for_a_time else ("is slow", "the time")
    )
    place = f"; it was {slow.place} ({slow.share:.0%})" if slow.place else ""
    words = f"rank {slow.rank} {is_slow}: the others waited {slow.waited:.0%} of {the_time} for it"
    return (words + place).replace("%", " %")

"""Ranks that wait inside a compilation, as on GPUs, where they compile together; pure."""

from __future__ import annotations

from collections.abc import Iterator

from mcjax_launch.kernel.wire.value import Value
from mcjax_launch.ranks import grouped, have, these_ranks
from mcjax_launch.runs.spmd import titled
from mcjax_launch.runs.state import RunState
from mcjax_launch.wording import lasting


class IdleCompilation(Value):
    """Ranks have compiled a program for long, and use no processor.

    Args:
        program: its name, as JAX's users know it.
        where: the user's line; "" where that is not known.
        since: when the first of them last used one, in time.monotonic's seconds.

    """

    program: str
    where: str
    ranks: tuple[int, ...]
    since: float

    def line(self, now: float) -> str:
        """It in one line."""
        at = f", at {self.where}" if self.where else ""
        return (
            f"{these_ranks(self.ranks)} {have(self.ranks)} compiled {self.program} for "
            f"{lasting(now - self.since)} without using a processor{at}"
        )


def idle_compilations(state: RunState) -> Iterator[IdleCompilation]:
    """Those of ranks that wait in one, by programs and lines."""
    since = state.idle_compilations
    latest = ((rank, state.ranks[rank].compilations.latest) for rank in since)
    known = (((titled(one.name), one.where), rank) for rank, one in latest if one is not None)
    for place, ranks in grouped(known).items():
        yield IdleCompilation(*place, tuple(ranks), min(since[rank] for rank in ranks))


def idle_compilation_lines(state: RunState) -> list[str]:
    """A line for each, as of the moment when it was last known what ranks use."""
    now = state.activity.usage_at
    return [idle.line(now) for idle in idle_compilations(state)]

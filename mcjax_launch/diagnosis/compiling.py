"""Ranks that wait inside a compilation, as on GPUs, where they compile together; pure."""

from __future__ import annotations

from collections.abc import Iterator

from mcjax_launch.kernel.wire.value import Value
from mcjax_launch.ranks import have, these_ranks
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
    groups: dict[tuple[str, str], list[int]] = {}
    for rank in since:
        if (latest := state.ranks[rank].compilations.latest) is not None:
            groups.setdefault((titled(latest.name), latest.where), []).append(rank)
    for place, ranks in groups.items():
        yield IdleCompilation(*place, tuple(ranks), min(since[rank] for rank in ranks))


def idle_compilation_lines(state: RunState) -> list[str]:
    """A line for each, as of the moment when it was last known what ranks use."""
    now = state.activity.usage_at
    return [idle.line(now) for idle in idle_compilations(state)]

"""Rules on compilations: which program a rank compiles, and compilations that wait."""

from __future__ import annotations

from collections.abc import Iterator

from mcjax_launch.diagnosis.view import Finding, View
from mcjax_launch.kernel.wire.value import Value
from mcjax_launch.ranks import grouped, have, these_ranks
from mcjax_launch.runs.rank_run import RankRun
from mcjax_launch.runs.spmd import titled
from mcjax_launch.runs.state import RunState
from mcjax_launch.wording import lasting

_TOGETHER = (
    "on GPUs, and where one compiles for all, ranks compile together: each waits for all others "
    "to compile the same program"
)


class IdleCompilation(Value):
    """Ranks have compiled a program for long, and use no processor.

    Args:
        program: its name, as JAX's users know it.
        where: the user's line; "" where that is not known.
        awaited: the rank that compiles it for them; -1 if they compile it themselves.
        since: when the first of them last used one, in time.monotonic's seconds.

    """

    program: str
    where: str
    awaited: int
    ranks: tuple[int, ...]
    since: float

    def line(self, now: float) -> str:
        """Return it in one line."""
        at = f", at {self.where}" if self.where else ""
        ranks, for_long = f"{these_ranks(self.ranks)} {have(self.ranks)}", lasting(now - self.since)
        if self.awaited >= 0:
            return (
                f"{ranks} waited {for_long} for rank {self.awaited} to compile {self.program}{at}"
            )
        return f"{ranks} compiled {self.program} for {for_long} without using a processor{at}"


def idle_compilations(state: RunState) -> Iterator[IdleCompilation]:
    """Return those of ranks that wait in one, by programs and lines."""
    since = state.idle_compilations
    spent = ((rank, state.ranks[rank].compilations) for rank in since)
    known = (
        ((titled(one.latest.name), one.latest.where, one.awaits), rank)
        for rank, one in spent
        if one.latest is not None
    )
    for place, ranks in grouped(known).items():
        yield IdleCompilation(*place, tuple(ranks), min(since[rank] for rank in ranks))


def waits_in_compilation(view: View) -> Iterator[Finding]:
    """Find ranks that wait in a compilation, as of when it was last known what they use."""
    verified = view.state.programs.held_any
    cure = _TOGETHER + ("" if verified else "; --verify-spmd tells where they part")
    for idle in idle_compilations(view.state):
        words = idle.line(view.state.activity.usage_at)
        yield Finding(("idle", idle.program, idle.where, idle.awaited), words, idle.ranks, cure)


def compiled_last(view: View) -> Iterator[Finding]:
    """Find what each rank compiles, or compiled last, and from which line."""
    if not view.uses_jax:
        return
    idle = view.state.idle_compilations
    groups = grouped(
        (_latest(run), run.process_id) for run in view.state.running if run.process_id not in idle
    )
    groups.pop("", None)
    for words, ranks in groups.items():
        yield Finding(("compiled", words), f"{these_ranks(ranks)}: {words}", tuple(ranks))


def _latest(run: RankRun) -> str:
    """Return the program that a rank compiles or compiled last; "" if none is expected yet."""
    latest = run.compilations.latest
    if latest is None:
        return "nothing compiled yet" if run.place.is_through else ""
    what = f"{titled(latest.name)} at {latest.where or 'an unknown line'}"
    return f"compiling {what}" if run.compilations.under_way else f"last compiled {what}"

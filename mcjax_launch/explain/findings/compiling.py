"""Rules on compilations: each rank's latest program, and compilations that use no processor."""

from __future__ import annotations

from collections.abc import Iterator

from mcjax_launch.explain.view import View
from mcjax_launch.journal.facts import Finding
from mcjax_launch.journal.programs import format_title
from mcjax_launch.journal.rank_run import RankRun
from mcjax_launch.journal.state import RunState
from mcjax_launch.ranks import format_ranks, group_by_key, inflect_have
from mcjax_launch.wire.value import Value
from mcjax_launch.wording import format_rough_duration

_TOGETHER = (
    "on GPUs, and where one rank compiles for all, ranks compile together: each waits until all "
    "others compile the same program"
)


class IdleCompilation(Value):
    """A compilation in which ranks have used no processor for long.

    Args:
        program: name of the program, such as `jit(step)`.
        where: the user's line, as `file:line`; "" if unknown.
        awaited: the rank that compiles for these ranks; -1 if they compile themselves.
        ranks: the ranks that compile, or wait for `awaited`.
        since: start of the longest idle time, in time.monotonic's seconds.

    """

    program: str
    where: str
    awaited: int
    ranks: tuple[int, ...]
    since: float

    def describe(self, now: float) -> str:
        """Describe the idle compilation in one line; `now` is in time.monotonic's seconds."""
        program, at = self.program, f", at {self.where}" if self.where else ""
        ranks = f"{format_ranks(self.ranks)} {inflect_have(self.ranks)}"
        for_long = format_rough_duration(now - self.since)
        if self.awaited >= 0:
            return f"{ranks} waited {for_long} for rank {self.awaited} to compile {program}{at}"
        return f"{ranks} been compiling {program} for {for_long} without using a processor{at}"


def find_idle_compilations(state: RunState) -> Iterator[IdleCompilation]:
    """Yield the idle compilations of a run, one for each program, line and awaited rank."""
    since = state.idle_compilations
    groups = group_by_key(
        ((format_title(latest.name), latest.where, state.ranks[rank].compilations.awaits), rank)
        for rank in since
        if (latest := state.ranks[rank].compilations.latest) is not None
    )
    for place, ranks in groups.items():
        yield IdleCompilation(*place, tuple(ranks), min(since[rank] for rank in ranks))


def waits_in_compilation(view: View) -> Iterator[Finding]:
    """Find compilations that use no processor, by the latest report of processor usage."""
    for idle in find_idle_compilations(view.state):
        words = idle.describe(view.state.activity.usage_at)
        yield Finding(
            ("idle", idle.program, idle.where, idle.awaited), words, idle.ranks, _TOGETHER
        )


def compiled_last(view: View) -> Iterator[Finding]:
    """Find the current or latest compilation of each rank, with its line; idle ranks excluded."""
    if not view.uses_jax:
        return
    idle = view.state.idle_compilations
    groups = group_by_key(
        (_describe_compilation(run), run.process_id)
        for run in view.state.running
        if run.process_id not in idle
    )
    groups.pop("", None)
    for words, ranks in groups.items():
        yield Finding(("compiled", words), f"{format_ranks(ranks)}: {words}", tuple(ranks))


def _describe_compilation(run: RankRun) -> str:
    """Describe a rank's current or latest compilation; "" before its first, unless it joined."""
    latest = run.compilations.latest
    if latest is None:
        return "nothing compiled yet" if run.reached.is_through else ""
    what = f"{format_title(latest.name)} at {latest.where or 'an unknown line'}"
    return f"compiling {what}" if run.compilations.under_way else f"last compiled {what}"

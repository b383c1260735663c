"""Rules on the stages that ranks have reached when the job reaches a limit, with advice."""

from __future__ import annotations

from collections.abc import Iterator

from mcjax_launch.explain.differences import OTHER_STEPS
from mcjax_launch.explain.findings.absent import ALL_OR_NONE, describe_absence
from mcjax_launch.explain.view import View
from mcjax_launch.explain.waits.deadlock import lacks_collective_timeout
from mcjax_launch.journal.facts import Finding
from mcjax_launch.journal.rank_run import Stage
from mcjax_launch.ranks import group_by_key

_TIMEOUT = (
    "to turn a collective that a rank never reaches into an error: "
    "-x XLA_FLAGS=--xla_cpu_collective_timeout_seconds=60"
)
# Stages in which ranks should not stay, the most telling first: words and cure.
_STAYS = {
    Stage.ABSENT: (
        "never called initialize()",
        "every rank has to call initialize(): the missing rank's stack shows what it is doing",
    ),
    Stage.JOINING: ("waiting in initialize()", ""),
    Stage.ALONE: ("running alone, after initialize() failed", ""),
    Stage.LEAVING: ("waiting for the others in JAX's exit barrier", OTHER_STEPS),
}
_OTHER_STACK = (
    "if the stack of a rank differs from the others', it took another branch, or skipped a program "
    "that it had run before"
)


def early_stage(view: View) -> Iterator[Finding]:
    """Find ranks that have exited with 0, never joined, run alone, or wait in the exit barrier."""
    if not view.uses_jax:
        return
    over = [run for run in view.runs if run.status == 0]
    ends = group_by_key(
        (describe_absence(run) if run.never_joined else "", run.process_id) for run in over
    )
    for how, ranks in sorted(ends.items(), reverse=True):
        words = f"{view.format_ranks(ranks)}: {f'exited with 0 {how}'.rstrip()}"
        yield Finding(("ended", how), words, tuple(ranks), ALL_OR_NONE if how else "")
    by_stage = group_by_key((stage, rank) for rank, stage in view.stages.items())
    never_joined = any(run.never_joined for run in over)
    for stage, (words, cure) in _STAYS.items():
        if stage in by_stage:
            ranks = by_stage[stage]
            is_behind = stage is Stage.LEAVING and bool(view.state.gaps)
            if is_behind or (stage is Stage.ABSENT and never_joined):  # that says more
                cure = ""
            yield Finding(stage, f"{view.format_ranks(ranks)}: {words}", tuple(ranks), cure)


def other_stack(view: View) -> Iterator[Finding]:
    """Advise to compare stacks, or to set a timeout, if no other fact explains the hang."""
    state, stages = view.state, set(view.stages.values())
    through = {view.stages[run.process_id] for run in state.running if run.reached.is_through}
    is_explained = (
        Stage.ABSENT in stages
        or through <= {Stage.LEFT, Stage.ALONE}
        or any(run.never_joined for run in view.runs)
        or bool(state.idle_compilations or state.gaps)
    )
    is_leaving = Stage.LEAVING in stages
    if is_explained or (view.moves and not is_leaving):
        return
    if not is_leaving:
        yield Finding("other stack", "", cure=_OTHER_STACK)
    if lacks_collective_timeout(state):
        yield Finding("endless", "", cure=_TIMEOUT)

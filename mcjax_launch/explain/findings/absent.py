"""Rules on ranks that do not call initialize() while others wait in it."""

from __future__ import annotations

from collections.abc import Iterator

from mcjax_launch.explain.findings.alone import explain_refusal
from mcjax_launch.explain.view import View
from mcjax_launch.journal.facts import Finding
from mcjax_launch.journal.rank_run import RankRun
from mcjax_launch.ranks import format_ranks
from mcjax_launch.wire.timers import scale_time

# Time to wait for the others' calls, which may fail for the same reason.
_ALIKE_S = scale_time(2.0)
#: Advice for a rank that exits with 0 and has not joined.
ALL_OR_NONE = (
    "either all ranks call initialize() or none: did this rank take another branch, or did its "
    "shell hide a failure?"
)


def ended_without(view: View) -> Iterator[Finding]:
    """Find ranks that exited with 0 without joining while other ranks wait in initialize().

    The finding is certain if all ranks that still run wait there.
    """
    gone = [run for run in view.runs if run.never_joined]
    if not gone or not view.waiting:
        return
    first, ranks = gone[0], tuple(run.process_id for run in gone)
    waiting = [run.process_id for run in view.waiting]
    is_certain = len(waiting) == len(view.state.running)
    them = "it" if len(gone) == 1 else "them"
    wait = f"others wait for {them}; the job ends when all of them do"
    if is_certain:
        wait = f"{format_ranks(waiting)} {'wait' if len(waiting) > 1 else 'waits'} for {them}"
    refused, call = first.membership.refused, first.membership.call
    at = f" at {call.where}" if call is not None and call.where else ""
    yield Finding(
        ("ended without", ranks),
        f"{view.format_ranks(ranks)} exited with 0 {describe_absence(first)}, but {wait}",
        ranks,
        cure=ALL_OR_NONE
        if refused is None
        else f"initialize(){at} failed {explain_refusal(refused)}",
        due=0.0 if refused is None else (first.process.ended_at or 0.0) + _ALIKE_S,
        is_certain=is_certain,
    )


def describe_absence(run: RankRun) -> str:
    """Return words for a rank that exited with 0: initialize() failed, or was never called."""
    if run.membership.refused is not None:
        return "after its call of initialize() had failed"
    return "without calling initialize()"


def never_called(view: View) -> Iterator[Finding]:
    """Find a rank whose missing call made other ranks' initialize() time out."""
    absent = [run for run in view.runs if not run.membership.has_called]
    if not absent or not view.failed_joining:
        return
    first = min(absent, key=lambda run: (run.status is None, run.order))
    others = [run.process_id for run in absent if run is not first]
    if (refused := first.membership.refused) is not None:
        did = "went on alone, but the others waited for it: initialize() failed"
        words = f"{view.format_ranks([first.process_id])} {did} {explain_refusal(refused)}"
        yield Finding("absent", words, (first.process_id,))
        return
    ranks = (first.process_id, *others)
    how = "and exited with 0" if first.never_joined else "while the others waited for it"
    words = f"{view.format_statement(ranks, 'never called initialize()')}, {how}"
    yield Finding("absent", words, ranks)

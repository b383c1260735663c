"""Rules on programs that not all ranks run, or not on the same devices."""

from __future__ import annotations

from collections.abc import Iterator

from mcjax_launch.explain.view import View
from mcjax_launch.journal.facts import Finding
from mcjax_launch.journal.sequences import DeviationKind, Difference

_SAME_ORDER = (
    "all ranks of a mesh must run the same programs in the same order; "
    "--verify-spmd ends a job that does not"
)


def other_sequence(view: View) -> Iterator[Finding]:
    """Find the differences between the programs that ranks have run.

    One is certain if a rank has ended, and a running rank has begun a program that needs it.
    """
    sequences = view.state.sequences
    if sequences is None or not sequences.differences:
        return
    from mcjax_launch.explain.differences import describe, describe_code, find_cure

    for difference in sequences.differences:
        ranks = tuple(rank for found in difference.deviations for rank in found.ranks)
        cure = find_cure(difference, _SAME_ORDER)
        code = describe_code(sequences, difference)
        for line, found in zip(describe(sequences, difference), difference.deviations, strict=True):
            if line not in view.said:
                is_certain = found.kind is DeviationKind.ENDED and _may_wait(view, difference)
                follows = "results may be wrong from there on"
                if is_certain:
                    follows = "the job can never go on"
                words = "; ".join((line, *code, follows))
                key = "sequence", difference.number, found
                yield Finding(key, words, ranks, cure, is_urgent=True, is_certain=is_certain)
                code = []


def _may_wait(view: View, difference: Difference) -> bool:
    """Return whether a running rank may wait for what ranks that have ended will never run."""
    ranks = view.state.ranks
    begun = any(not ranks[rank].is_gone for rank in difference.ranks)
    return begun and not view.state.survives

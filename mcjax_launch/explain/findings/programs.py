"""Rules on programs that not all ranks run, or not on the same devices."""

from __future__ import annotations

from collections.abc import Iterator

from mcjax_launch.explain.view import View
from mcjax_launch.journal.facts import Finding
from mcjax_launch.ranks import format_ranks, group_by_key, inflect_have

_BEHIND = (
    "a rank that does not run the same program took another branch, or waits for something else"
)

# So many latest programs of each rank are shown, of at most so many groups of ranks.
_LAST, _MOST_GROUPS = 3, 8

_SAME_ORDER = (
    "all ranks of a mesh must run the same programs in the same order; "
    "--verify-spmd ends a job that does not"
)


def other_sequence(view: View) -> Iterator[Finding]:
    """Find the differences between the programs that ranks have run."""
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
                words = "; ".join((line, *code, "results may be wrong from there on"))
                key = "sequence", difference.number, found
                yield Finding(key, words, ranks, cure, is_urgent=True)
                code = []


def last_programs(view: View) -> Iterator[Finding]:
    """Find the latest programs that each rank has begun, those of ranks that are behind first."""
    sequences = view.state.sequences
    if sequences is None:
        return
    last = {run.process_id: sequences.list_last(run.process_id, _LAST) for run in view.runs}
    groups = group_by_key((tuple(ran), rank) for rank, ran in last.items() if ran)
    by_number = sorted(groups.items(), key=lambda group: group[0][-1][0])
    for ran, ranks in by_number[:_MOST_GROUPS]:
        programs = ", ".join(f"{number:,} {program}" for number, program in ran)
        words = f"{format_ranks(ranks)}: last began program{'s'[: len(ran) - 1]} {programs}"
        yield Finding(("began", tuple(ranks)), words, tuple(ranks))


def behind(view: View) -> Iterator[Finding]:
    """Find programs in which some ranks wait for other participating ranks to reach them."""
    if view.state.differs:
        return
    for gap in view.state.gaps:
        late = f"{format_ranks(gap.behind)} {inflect_have(gap.behind)}"
        words = f"{format_ranks(gap.begun)}: waiting in {gap.program}, which {late} not reached"
        yield Finding(("behind", gap.program), words, gap.behind, _BEHIND)

"""Rules on programs that not all ranks run, or not on the same devices."""

from __future__ import annotations

from collections.abc import Iterator

from mcjax_launch.diagnosis.view import Finding, View
from mcjax_launch.diagnosis.waits.wait import find_wait
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


def other_mesh(view: View) -> Iterator[Finding]:
    """Find ranks whose mesh has the same devices in another order."""
    if not view.state.diverged:
        return
    from mcjax_launch.diagnosis.spmd import describe_device_order

    if words := describe_device_order(view.state.programs):
        yield Finding("mesh", words)


def other_sequence(view: View) -> Iterator[Finding]:
    """Find the first difference in the order of programs that all ranks had run before."""
    if view.state.sequences is None or view.state.diverged:
        return
    from mcjax_launch.diagnosis.sequences import describe

    for _, difference in view.state.sequences.differences:
        ranks = [rank for deviation in difference.deviations for rank in deviation.ranks]
        for line in describe(difference):
            if line in view.said:
                continue
            words = f"{line}; results may be wrong from there on"
            yield Finding(("sequence", line), words, tuple(ranks), _SAME_ORDER, is_urgent=True)


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


def divergence(view: View) -> Iterator[Finding]:
    """Find the divergence of the ranks' programs, as a title and lines with details."""
    if view.state.diverged and (view.positions is None or find_wait(view) is not None):
        from mcjax_launch.diagnosis.spmd import describe_divergence

        yield Finding("diverged", "the ranks ran different programs:")
        for line in describe_divergence(view.state.programs):
            yield Finding(("diverged", line), line)


def behind(view: View) -> Iterator[Finding]:
    """Find programs in which some ranks wait for other participating ranks to reach them."""
    if view.state.diverged:
        return
    for program, there, missing in view.state.programs.list_unfinished():
        what = f"{program.title} at {program.where}" if program.where else program.title
        late = f"{format_ranks(missing)} {inflect_have(missing)}"
        words = f"{format_ranks(there)}: waiting in {what}, which {late} not reached"
        yield Finding(("behind", program), words, tuple(missing), _BEHIND)

"""Rules on programs that not all ranks run, or not on the same devices."""

from __future__ import annotations

from collections.abc import Iterator

from mcjax_launch.diagnosis.view import Finding, View
from mcjax_launch.diagnosis.waits.wait import find_wait
from mcjax_launch.ranks import format_ranks, inflect_have

_BEHIND = (
    "a rank that does not run the same program took another branch, or waits for something else"
)

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
            words = f"{line}; results may be wrong from there on"
            yield Finding(("sequence", line), words, tuple(ranks), _SAME_ORDER, is_urgent=True)


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

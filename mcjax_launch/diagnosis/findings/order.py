"""A rule on ranks that run the same programs from one line in different orders."""

from __future__ import annotations

from collections.abc import Iterator

from mcjax_launch.diagnosis.view import Finding, View
from mcjax_launch.ranks import format_ranks, inflect_have

_CURE = (
    "a loop over a set, or over os.listdir()? Loop over sorted(...) instead: its order is "
    "the same in all ranks"
)


def loop_over_set(view: View) -> Iterator[Finding]:
    """Find ranks whose order of programs differs at one line, as in a loop over a set."""
    if not view.state.diverged:
        return
    from mcjax_launch.diagnosis.spmd import find_other_order

    found = find_other_order(view.state.programs)
    if found is None:
        return
    (odd, own), (usual, theirs) = found
    if own.where and own.where == theirs.where:
        programs = " and ".join(dict.fromkeys((own.title, theirs.title)))
        words = (
            f"{format_ranks(odd.ranks)} {inflect_have(odd.ranks)} run {programs} at {own.where} "
            f"in a different order than {format_ranks(usual.ranks)}: is this {_CURE}"
        )
        yield Finding("set order", words, odd.ranks)

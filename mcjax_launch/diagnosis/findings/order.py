"""A rule on ranks that run the same programs from one line in different orders."""

from __future__ import annotations

from collections.abc import Iterator

from mcjax_launch.diagnosis.view import Finding, View
from mcjax_launch.ranks import have, these_ranks

_CURE = (
    "a loop over a set, or over os.listdir()? Loop over sorted(...) instead: its order is "
    "the same in all ranks"
)


def loop_over_set(view: View) -> Iterator[Finding]:
    """Find ranks whose order of programs differs at one line, as in a loop over a set."""
    if not view.state.diverged:
        return
    from mcjax_launch.diagnosis.spmd import other_order

    found = other_order(view.state.programs)
    if found is None:
        return
    (odd, own), (usual, theirs) = found
    if own.where and own.where == theirs.where:
        programs = " and ".join(dict.fromkeys((own.title, theirs.title)))
        words = (
            f"{these_ranks(odd.ranks)} {have(odd.ranks)} run {programs} at {own.where} in a "
            f"different order than {these_ranks(usual.ranks)}: is this {_CURE}"
        )
        yield Finding("set order", words, odd.ranks)

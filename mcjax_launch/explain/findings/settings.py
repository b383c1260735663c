"""Rules on versions and settings that must be the same on all ranks, and are not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from mcjax_launch.explain.view import View
from mcjax_launch.journal.facts import Finding
from mcjax_launch.ranks import format_ranks, group_by_key, inflect_have


def other_version(view: View) -> Iterator[Finding]:
    """Find a rank whose jax or jaxlib is not that of most ranks."""
    for package in ("jax", "jaxlib"):
        versions = [(getattr(call, package), run.process_id) for run, call in view.calls]
        groups = group_by_key(
            (f"{package} {version}", rank) for version, rank in versions if version
        )
        if words := _find_odd_ranks(
            view, groups, lambda has, other: (has, other.partition(" ")[2])
        ):
            yield Finding("other version", *words)
            return


def other_setting(view: View) -> Iterator[Finding]:
    """Find a rank with another JAX_PLATFORMS, JAX_ENABLE_X64 or XLA_FLAGS than most."""
    known = [(run.process_id, c.settings) for run, c in view.calls if c.settings is not None]
    for name in sorted({name for _, settings in known for name in settings}):
        groups = group_by_key((settings.get(name, ""), rank) for rank, settings in sorted(known))
        if words := _find_odd_ranks(view, groups, partial(_format_setting_values, name)):
            yield Finding("other setting", *words)
            return


def _find_odd_ranks(
    view: View, groups: Mapping[str, Sequence[int]], words: Callable[[str, str], tuple[str, str]]
) -> tuple[str, tuple[int, ...]] | None:
    """Return a line on ranks that differ from most, and these ranks; None if all are alike.

    Args:
        view: view of the run.
        groups: the ranks with each value.
        words: called with the odd and the usual value; returns both in words, in that order.

    """
    if len(groups) < 2:
        return None
    # Of two groups of equal size, that of rank 0 counts as the usual.
    usual = max(groups, key=lambda value: (len(groups[value]), -groups[value][0]))
    odd = next(value for value in groups if value != usual)
    first, *others = groups[odd]
    also = f" (as {inflect_have(others)} {format_ranks(others)})" if others else ""
    own, theirs = words(odd, usual)
    rest = groups[usual]
    has = f"has {own}{also}, {format_ranks(rest)} {inflect_have(rest)} {theirs}"
    line = f"{view.format_ranks([first])} {has}: all processes of a job need the same"
    return line, (first, *others)


def _format_setting_values(name: str, own: str, theirs: str) -> tuple[str, str]:
    """Return two values of a setting in words, without the flags that both contain."""
    common = {*own.split()} & {*theirs.split()}
    first, second = (
        " ".join(word for word in value.split() if word not in common) for value in (own, theirs)
    )
    return (f"{name}={first}", second or "none") if first else (f"no {name}", f"{name}={second}")

"""Rules on versions and settings that must be the same on all ranks, and are not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from mcjax_launch.diagnosis.view import Finding, View
from mcjax_launch.ranks import grouped, have, these_ranks


def other_version(view: View) -> Iterator[Finding]:
    """Find a rank whose jax or jaxlib is not that of most ranks."""
    for package in ("jax", "jaxlib"):
        versions = [(getattr(call, package), run.process_id) for run, call in view.calls]
        groups = grouped((f"{package} {version}", rank) for version, rank in versions if version)
        if words := _odd(view, groups, lambda has, other: (has, other.partition(" ")[2])):
            yield Finding("other version", *words)
            return


def other_setting(view: View) -> Iterator[Finding]:
    """Find a rank with another JAX_PLATFORMS, JAX_ENABLE_X64 or XLA_FLAGS than most."""
    known = [(run.process_id, c.settings) for run, c in view.calls if c.settings is not None]
    for name in sorted({name for _, settings in known for name in settings}):
        groups = grouped((settings.get(name, ""), rank) for rank, settings in sorted(known))
        if words := _odd(view, groups, partial(_settings, name)):
            yield Finding("other setting", *words)
            return


def _odd(
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
    also = f" (as {have(others)} {these_ranks(others)})" if others else ""
    own, theirs = words(odd, usual)
    rest = groups[usual]
    has = f"has {own}{also}, {these_ranks(rest)} {have(rest)} {theirs}"
    line = f"{view.named([first])} {has}: all processes of a job need the same"
    return line, (first, *others)


def _settings(name: str, own: str, theirs: str) -> tuple[str, str]:
    """Return two values of a setting in words, without the flags that both contain."""
    common = {*own.split()} & {*theirs.split()}
    first, second = (
        " ".join(word for word in value.split() if word not in common) for value in (own, theirs)
    )
    return (f"{name}={first}", second or "none") if first else (f"no {name}", f"{name}={second}")


def without_partition(view: View) -> Iterator[Finding]:
    """Find ranks without a partition index in a job where another rank has one."""
    missing = [run.process_id for run, call in view.calls if call.partition is None]
    given = [run.process_id for run, call in view.calls if call.partition is not None]
    if not given or not missing:
        return
    first, *others = missing
    nor = f", nor {have(others)} {these_ranks(others)}" if others else ""
    yield Finding(
        "partition",
        f"{view.named([first])} has no partition index{nor}, {these_ranks(given)} {have(given)}: "
        "JAX needs it from all processes or none (JAX_PARTITION_INDEX, or partition_index= of "
        "initialize())",
        tuple(missing),
    )

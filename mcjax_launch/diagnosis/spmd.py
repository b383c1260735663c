"""Descriptions of a divergence: which programs ranks ran, and how their code differs; pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from mcjax_launch.ranks import format_ranks, group_by_key
from mcjax_launch.runs.spmd import Comparison, DivergedGroup, RanProgram

_MOST_SHAPES = 4
_MOST_GROUPS = 8
_OF_A_SET = (
    "; is this a loop over a set, or over os.listdir()? Loop over sorted(...) instead: its order "
    "is the same in all ranks"
)


def describe_divergence(comparison: Comparison) -> list[str]:
    """Describe each group's program at the divergence, which must exist, and how these differ."""
    assert comparison.divergence is not None
    sides = comparison.group_diverged_ranks()
    shown = _select_arguments([side.program for side in sides if side.program is not None])
    groups = group_by_key((_describe_action(side, shown), side) for side in sides)
    parts = [
        f"{format_ranks(rank for side in same for rank in side.ranks)} {action}"
        for action, same in groups.items()
    ]
    lines = [f"program #{comparison.divergence.count + 1}: {' · '.join(parts)}"]
    order = describe_device_order(comparison)
    more = [
        *_describe_other_order(comparison, sides),
        *([order] if order else []),
    ]
    for same in groups.values():
        if len(same) > 1 and not more:  # only their code differs, and is not known
            between = " · ".join(format_ranks(side.ranks) for side in same[:_MOST_GROUPS])
            lines.append(
                f"same name and shapes, different code on {between}: an operation, a Python "
                "value in it (a seed, a setting, process_index()), sharding or device order"
            )
    return lines + more


def _describe_action(side: DivergedGroup, shown: Collection[int]) -> str:
    program = side.program
    if program is None:
        return "finished without it" if side.over else "not there yet"
    shapes = [program.shapes[index] for index in shown if index < len(program.shapes)]
    if omitted := len(program.shapes) - len(shapes):
        shapes.append(f"(and {omitted} more)")
    return " ".join(filter(None, (program.where, program.title, *shapes)))


def _select_arguments(programs: Iterable[RanProgram]) -> list[int]:
    """Return indices of arguments to show: all if at most 4, else up to 4 with unequal shapes."""
    shapes = [program.shapes for program in programs]
    count = max(map(len, shapes), default=0)
    if count <= _MOST_SHAPES:
        return list(range(count))
    differing = [index for index in range(count) if len({s[index : index + 1] for s in shapes}) > 1]
    return (differing or list(range(count)))[:_MOST_SHAPES]


def list_new_programs(sides: Sequence[DivergedGroup]) -> list[tuple[DivergedGroup, RanProgram]]:
    """Return each program that a group of ranks had not run before, with its largest group.

    Programs of the largest groups are first.
    """
    found: dict[str, tuple[DivergedGroup, RanProgram]] = {}
    for side in sorted(sides, key=lambda side: -len(side.ranks)):
        if side.program is not None:
            found.setdefault(side.program.fingerprint, (side, side.program))
    return list(found.values())


def _describe_other_order(comparison: Comparison, sides: Sequence[DivergedGroup]) -> list[str]:
    """Return a line on a group of ranks that also runs another group's program, but later."""
    new = list_new_programs(sides)
    for usual, theirs in new:
        for odd, own in new:
            if odd is not usual and comparison.also_runs(odd.ranks[0], theirs):
                all_others = len(sides) == 2 and len(usual.ranks) > 1
                others = "the others" if all_others else format_ranks(usual.ranks)
                at_one_line = own.where and own.where == theirs.where
                return [
                    f"{format_ranks(odd.ranks)} {_inflect_run(odd)} {own.title} where {others} "
                    f"{_inflect_run(usual)} {theirs.title}, and {theirs.title} later: "
                    f"a different order{_OF_A_SET if at_one_line else ''}"
                ]
    return []


def describe_device_order(comparison: Comparison) -> str:
    """Return a line on ranks whose mesh has the same devices in another order; "" if none."""
    sides = comparison.group_diverged_ranks()
    known = [(side, side.program) for side in sides if side.program is not None]
    if not known:
        return ""
    usual, theirs = max(known, key=lambda pair: len(pair[0].ranks))
    for side, program in known:
        same = (program.name, program.ranks, program.devices, program.where)
        alike = same == (theirs.name, theirs.ranks, theirs.devices, theirs.where)
        if program.order != theirs.order and alike and program.shapes == theirs.shapes:
            at = f" at {program.where}" if program.where else ""
            return (
                f"{format_ranks(side.ranks)} {_inflect_run(side)} {program.title}{at} "
                f"on a mesh whose devices are {_format_order(program)}, "
                f"those of {format_ranks(usual.ranks)} are {_format_order(theirs)}: "
                "all ranks need the same order"
            )
    return ""


def _format_order(program: RanProgram) -> str:
    if not program.order:
        return "in the order of their ids"
    shown = ",".join(map(str, program.order[:_MOST_GROUPS]))
    more = ",..." if len(program.order) > _MOST_GROUPS else ""
    return f"in the order {shown}{more}"


def _inflect_run(side: DivergedGroup) -> str:
    return "run" if len(side.ranks) > 1 else "runs"

"""Where ranks ran different programs, as lines for a person; pure."""

from collections.abc import Collection, Iterable

from mcjax_launch.ranks import ranges, these_ranks
from mcjax_launch.run.spmd import Comparison, Program, Side

_MOST_SHAPES = 4
_MOST_GROUPS = 8


def divergence_lines(comparison: Comparison) -> list[str]:
    """Who ran what where the ranks diverged; there has to be a divergence."""
    assert comparison.divergence is not None
    sides = comparison.sides()
    shown = _differing([side.program for side in sides if side.program is not None])
    groups: dict[str, list[Side]] = {}
    for side in sides:
        groups.setdefault(_action(side, shown), []).append(side)
    parts = [
        f"{these_ranks(rank for side in same for rank in side.ranks)} {action}"
        for action, same in groups.items()
    ]
    lines = [f"program #{comparison.divergence.count + 1}: {' · '.join(parts)}"]
    for same in groups.values():
        if len(same) > 1:  # only their code differs
            between = " · ".join(ranges(side.ranks) for side in same[:_MOST_GROUPS])
            lines.append(
                f"same name and shapes, different code on ranks {between}: an operation, a Python "
                "value in it (a seed, a setting, process_index()), sharding or device order"
            )
    return lines


def _action(side: Side, shown: Collection[int]) -> str:
    program = side.program
    if program is None:
        return "finished without it" if side.over else "not there yet"
    shapes = [program.shapes[index] for index in shown if index < len(program.shapes)]
    if omitted := len(program.shapes) - len(shapes):
        shapes.append(f"(and {omitted} more)")
    what = " ".join(filter(None, (program.where, program.title, *shapes)))
    return f"ran {what} again instead" if side.again else what


def _differing(programs: Iterable[Program]) -> list[int]:
    """Which arguments to show: all if they are few, else those whose shapes differ."""
    shapes = [program.shapes for program in programs]
    count = max(map(len, shapes), default=0)
    if count <= _MOST_SHAPES:
        return list(range(count))
    differing = [index for index in range(count) if len({s[index : index + 1] for s in shapes}) > 1]
    return (differing or list(range(count)))[:_MOST_SHAPES]

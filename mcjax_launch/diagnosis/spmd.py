"""Where ranks ran different programs, as lines for a person; pure."""

from collections.abc import Collection, Iterable, Iterator, Sequence

from mcjax_launch.ranks import grouped, have, these_ranks
from mcjax_launch.runs.spmd import Comparison, RanProgram, Side

_MOST_SHAPES = 4
_MOST_GROUPS = 8


def divergence_lines(comparison: Comparison) -> list[str]:
    """Who ran what where the ranks diverged; there has to be a divergence."""
    assert comparison.divergence is not None
    sides = comparison.sides()
    shown = _differing([side.program for side in sides if side.program is not None])
    groups = grouped((_action(side, shown), side) for side in sides)
    parts = [
        f"{these_ranks(rank for side in same for rank in side.ranks)} {action}"
        for action, same in groups.items()
    ]
    lines = [f"program #{comparison.divergence.count + 1}: {' · '.join(parts)}"]
    order = other_device_order(comparison)
    more = [*_other_order(comparison, sides), *([order] if order else _code(comparison, sides))]
    for same in groups.values():
        if len(same) > 1 and not more:  # only their code differs, and is not known
            between = " · ".join(these_ranks(side.ranks) for side in same[:_MOST_GROUPS])
            lines.append(
                f"same name and shapes, different code on {between}: an operation, a Python "
                "value in it (a seed, a setting, process_index()), sharding or device order"
            )
    return lines + more


def unequal_lines(comparison: Comparison) -> list[str]:
    """Which argument of a program some ranks have otherwise than others; there has to be one."""
    from mcjax_launch.diagnosis.program_code import parsed

    unequal = comparison.copies.unequal
    assert unequal is not None
    program, code = unequal.program, comparison.codes.get(unequal.program.fingerprint)
    arguments = parsed(code.text).arguments if code is not None and code.text else ()
    name = f"argument {unequal.argument + 1}"
    if unequal.argument < len(arguments):
        argument = arguments[unequal.argument]
        name = f"argument {argument.name} {argument.shape}"
    groups = " · ".join(these_ranks(ranks) for ranks in unequal.groups[:_MOST_GROUPS])
    at = f" at {program.where}" if program.where else ""
    return [
        f"{program.title}{at}: {name} is replicated, and differs between {groups}",
        "hint: each process has made it from values of its own (a seed, process_index(), data that "
        "it has read); JAX takes it to be the same on all",
    ]


def _action(side: Side, shown: Collection[int]) -> str:
    program = side.program
    if program is None:
        return "finished without it" if side.over else "not there yet"
    shapes = [program.shapes[index] for index in shown if index < len(program.shapes)]
    if omitted := len(program.shapes) - len(shapes):
        shapes.append(f"(and {omitted} more)")
    what = " ".join(filter(None, (program.where, program.title, *shapes)))
    if side.again and not program.name:
        return f"stood still at {program.where} instead, in what they had run before"
    return f"ran {what} again instead" if side.again else what


def _differing(programs: Iterable[RanProgram]) -> list[int]:
    """Which arguments to show: all if they are few, else those whose shapes differ."""
    shapes = [program.shapes for program in programs]
    count = max(map(len, shapes), default=0)
    if count <= _MOST_SHAPES:
        return list(range(count))
    differing = [index for index in range(count) if len({s[index : index + 1] for s in shapes}) > 1]
    return (differing or list(range(count)))[:_MOST_SHAPES]


def different_programs(sides: Sequence[Side]) -> list[tuple[Side, RanProgram]]:
    """The programs that are new to the sides, each with a side that runs it; largest first."""
    found: dict[str, tuple[Side, RanProgram]] = {}
    for side in sorted(sides, key=lambda side: -len(side.ranks)):
        if side.program is not None and not side.again:
            found.setdefault(side.program.fingerprint, (side, side.program))
    return list(found.values())


def _other_order(comparison: Comparison, sides: Sequence[Side]) -> Iterator[str]:
    """Where one side is known to come to the program of another as well, but later."""
    new = different_programs(sides)
    for usual, theirs in new:
        for odd, own in new:
            later = comparison.comes_to(odd.ranks[0], theirs) if odd is not usual else None
            if later is not None:
                then = f"{theirs.title} {'next' if later == 1 else 'later'}"
                if later == 0:
                    then = f"{have(odd.ranks)} compiled {theirs.title} too"
                all_others = len(sides) == 2 and len(usual.ranks) > 1
                others = "the others" if all_others else these_ranks(usual.ranks)
                yield (
                    f"{these_ranks(odd.ranks)} {_run(odd)} {own.title} where {others} "
                    f"{_run(usual)} {theirs.title}, and {then}: another order"
                )
                return


def other_device_order(comparison: Comparison) -> str:
    """A line on ranks whose mesh has the same devices in another order; "" if that is not it."""
    sides = comparison.sides()
    known = [(side, side.program) for side in sides if side.program is not None and not side.again]
    if not known:
        return ""
    usual, theirs = max(known, key=lambda one: len(one[0].ranks))
    for side, program in known:
        same = (program.name, program.ranks, program.devices, program.where)
        alike = same == (theirs.name, theirs.ranks, theirs.devices, theirs.where)
        if program.order != theirs.order and alike and program.shapes == theirs.shapes:
            at = f" at {program.where}" if program.where else ""
            return (
                f"{these_ranks(side.ranks)} {_run(side)} {program.title}{at} on a mesh whose "
                f"devices are {_ordered(program)}, those of {these_ranks(usual.ranks)} are "
                f"{_ordered(theirs)}: all ranks need the same"
            )
    return ""


def _ordered(program: RanProgram) -> str:
    if not program.order:
        return "in the order of their ids"
    shown = ",".join(map(str, program.order[:_MOST_GROUPS]))
    more = ",..." if len(program.order) > _MOST_GROUPS else ""
    return f"in the order {shown}{more}"


def _run(side: Side) -> str:
    return "run" if len(side.ranks) > 1 else "runs"


def _code(comparison: Comparison, sides: Sequence[Side]) -> list[str]:
    """In what the programs part, as far as their code has been shown."""
    from mcjax_launch.diagnosis.program_code import difference, parsed

    known = []
    for side, program in different_programs(sides):
        code = comparison.codes.get(program.fingerprint)
        if code is not None and code.complete and code.text:
            known.append((these_ranks(side.ranks), parsed(code.text)))
    lines: dict[tuple[str, str], list[str]] = {}
    for ranks, other in known[1:_MOST_GROUPS]:
        for what, usual, theirs in difference(known[0][1], other):
            lines.setdefault((what, usual), []).append(f"{ranks}: {theirs}")
    return [
        f"{what or 'they part at'}: {known[0][0]}: {usual} · {' · '.join(others)}"
        for (what, usual), others in lines.items()
    ]

"""Words for the differences between the programs that ranks have run; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mcjax_launch.features.recorder.program_code import find_code_differences, parse_code
from mcjax_launch.features.recorder.replicas import ValueDifference
from mcjax_launch.features.recorder.sequences import (
    Deviation,
    Difference,
    ProgramName,
    ProgramSequences,
)
from mcjax_launch.journal.programs import format_title
from mcjax_launch.journal.state import RunState
from mcjax_launch.ranks import format_count, format_ranks

#: Advice for a job in which a rank has finished and another one has not.
OTHER_STEPS = (
    "the ranks do not take the same number of steps: do they all have the same amount of data?"
)
_OF_A_SET = (
    "; is this a loop over a set, or over os.listdir()? Loop over sorted(...) instead: its order "
    "is the same in all ranks"
)


def describe_differences(sequences: ProgramSequences) -> list[str]:
    """Return the lines on all differences of all meshes."""
    return [
        line
        for difference in sequences.differences
        for line in (*describe(sequences, difference), *describe_other_code(sequences, difference))
    ]


def describe(sequences: ProgramSequences, difference: Difference) -> list[str]:
    """Return a line for each way in which ranks deviate from the usual program."""
    usual = sequences.names[difference.identity]
    return [
        _describe_deviation(difference, found, usual, sequences.names[found.identity])
        for found in difference.deviations
    ]


def describe_other_code(sequences: ProgramSequences, difference: Difference) -> list[str]:
    """Return lines on how the code of programs at a difference differs, as far as it is known."""
    return describe_code(sequences, difference.other_code)


def describe_code(sequences: ProgramSequences, ranks: Mapping[int, Sequence[int]]) -> list[str]:
    """Return lines on how the code of programs differs from the first one's, as far as it is known.

    Args:
        sequences: knows the code.
        ranks: the ranks of each program, by its identity.

    """
    programs = [
        (format_ranks(ranks[identity]), parse_code(text))
        for identity in ranks
        if (text := sequences.texts.get(identity))
    ]
    if not programs or next(iter(ranks)) not in sequences.texts:
        return []
    usual, *others = programs
    lines: dict[tuple[str, str], list[str]] = {}
    for who, code in others:
        for what, ours, theirs in find_code_differences(usual[1], code):
            lines.setdefault((what, ours), []).append(f"{who}: {theirs}")
    return [
        f"{what or 'they differ at'}: {usual[0]}: {ours} · {' · '.join(found)}"
        for (what, ours), found in lines.items()
    ]


def describe_compilations(state: RunState) -> str:
    """Return words on ranks that compile another program than others of its name; "" if none do.

    The others compile it, or have begun it.
    """
    sequences = state.sequences
    if sequences is None:
        return ""
    groups: dict[ProgramName, dict[int, list[int]]] = {}  # ranks by name and identity
    compiled = {}  # names of the programs that ranks compile
    for rank, run in state.ranks.items():
        identity, latest = sequences.find_begun(rank), run.compilations.latest
        name = sequences.names[identity]
        if run.compilations.under_way and latest is not None:
            identity, name = latest.identity, ProgramName(format_title(latest.name), latest.where)
            compiled[rank] = name
        if identity:
            groups.setdefault(name, {}).setdefault(identity, []).append(rank)
    for name in dict.fromkeys(compiled.values()):
        by_size = sorted(groups.get(name, {}).items(), key=lambda each: (-len(each[1]), each[1]))
        if len(by_size) > 1:
            ranks = [rank for _, own in by_size[1:] for rank in own]
            verbs = ("compiles", "compile")
            if not compiled.keys() >= set(ranks):
                verbs = ("has begun", "compile or have begun")
            verb = verbs[len(ranks) > 1]
            usual = format_ranks(by_size[0][1])
            line = f"{format_ranks(ranks)} {verb} another {name} than {usual}"
            return "; ".join((line, *describe_code(sequences, dict(by_size))))
    return ""


def describe_values(sequences: ProgramSequences, difference: ValueDifference) -> str:
    """Return the line on a difference between the values of an array."""
    held, groups = difference.held, difference.groups
    what = "argument" if difference.of_arguments else "output"
    name = f"{what} {held.name}" if held.name else f"the {what}"
    if not held.name and held.index:
        name = f"{what} {held.index}"
    part = f"part {held.part} of " if held.part else ""
    more = f" and {difference.more} more" if difference.more else ""
    where = f"{part}{name}{more} of {sequences.names[difference.identity]}"
    place = f"{where} (program {difference.number:,} of this mesh)"
    if len(groups) > 2 and len(groups[0]) == 1:
        who = format_ranks(rank for group in groups for rank in group)
        return f"{who} each hold other bits in {place}"
    others = sorted(rank for group in groups[1:] for rank in group)
    hold = "holds" if len(others) == 1 else "hold"
    return f"{format_ranks(others)} {hold} other bits than {format_ranks(groups[0])} in {place}"


def advise_on_values(difference: ValueDifference) -> str:
    """Return a hint on where ranks may have got other values."""
    if difference.of_arguments:
        return (
            "hint: does each rank have its own seed or checkpoint, or memory that nothing has set "
            "(np.empty, jnp.empty)?"
        )
    if difference.is_mapped:
        return (
            "hint: with out_specs=P() and check_vma=False (check_rep=False) shard_map calls an "
            "output replicated and does not look: reduce it (jax.lax.pmean), or let out_specs name "
            "the mesh's axis"
        )
    return (
        "hint: are numbers or numpy arrays that ranks pass to it the same in all ranks? If they "
        "are, a device computes other bits than others"
    )


def find_cure(difference: Difference, usual: str) -> str:
    """Return advice on a difference."""
    if any(not found.identity for found in difference.deviations):
        return OTHER_STEPS
    return usual


def _describe_deviation(
    difference: Difference, deviation: Deviation, usual: ProgramName, own: ProgramName
) -> str:
    others, who = format_ranks(difference.ranks), format_ranks(deviation.ranks)
    here = f"program {difference.number:,} of this mesh"
    skipped = f"{usual}{_format_more(deviation.skipped)}"
    extra = f"{own}{_format_more(deviation.extra)}"
    if not deviation.identity:
        count = format_count(deviation.count, "program")
        return f"{who} ended after {count} of this mesh: {others} began {usual}"
    if deviation.skipped and deviation.extra:
        did = f"skipped {skipped}, or ran {extra} once more"
        return f"{who} {did} ({here}): {others} ran {usual.title}"
    if deviation.skipped:
        return f"{who} skipped {skipped} ({here}): {others} ran it"
    if deviation.extra:
        they = "they" if len(difference.ranks) > 1 else "it"
        return f"{who} ran {extra}, which {others} did not run ({here}): {they} ran {usual}"
    if deviation.is_permuted:
        hint = _OF_A_SET if own.where == usual.where else ""
        return f"{who} ran {own} where {others} ran {usual} ({here}): another order{hint}"
    if own.title == usual.title:
        return f"{who} ran another {own} than {others} ({here})"
    return f"{who} ran {own} in place of {usual} ({here}), which {others} ran"


def _format_more(count: int) -> str:
    """Return words for the programs after the first of `count`."""
    return f" and {format_count(count - 1, 'more program')}" if count > 1 else ""

"""Words of a preview's report, and the judgement whether programs fit a chip's memory; pure."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from mcjax_launch.features.preview.messages import Checkpoint, PreviewedProgram, ProgramArgument
from mcjax_launch.journal.programs import format_title
from mcjax_launch.ranks import format_count, format_ranks, group_by_key
from mcjax_launch.wire.codec import Nested
from mcjax_launch.wording import format_names

# Programs to show, those that need most memory first.
_MOST_PROGRAMS = 8
# An argument of which each device holds the whole is worth a warning above this share of the
# memory, or from these bytes on.
_UNSHARDED, _UNSHARDED_BYTES = 0.1, 256 << 20
# Names of axes along which chips should be near each other.
_NEAR = re.compile(r"(tp|tensor|model|mp|mdl)(_?\w*)", re.IGNORECASE)
# Exceptions that a zero may have caused.
_OF_VALUES = ("ZeroDivisionError", "FloatingPointError", "AssertionError")
_FLOPS = ("MFLOP", "GFLOP", "TFLOP")


class Chip(NamedTuple):
    """Memory with which programs are compared.

    Args:
        on: value of --on; "" if it is not given.
        memory: bytes; 0 if they are not known.

    """

    on: str = ""
    memory: int = 0


class RankReport:
    """Report of a rank.

    Attributes:
        programs: its programs, in the order in which they were compiled.
        counts: number of calls of each.
        checkpoints: checkpoints that it has neither written nor read.
        rematerialized: operations whose operand the compiler reshards by making it whole.
        error: class of the exception that has ended the rank; "" if none has.
        has_failed: True if the rank has ended before its end.

    """

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.programs: list[PreviewedProgram] = []
        self.counts: Sequence[int] = ()
        self.checkpoints: list[Checkpoint] = []
        self.rematerialized: list[str] = []
        self.error = ""
        self.has_failed = False

    def count_calls(self, programs: Iterable[PreviewedProgram]) -> int:
        """Return the number of calls of some programs, as far as the rank has reported it."""
        return sum(sum(self.counts[each.number : each.number + 1]) for each in programs)

    def group_programs(self) -> dict[str, list[PreviewedProgram]]:
        """Return the programs by their function and the line that calls it."""
        return group_by_key((_name(program), program) for program in self.programs)


def find_misfits(ranks: Iterable[RankReport], chip: Chip) -> list[str]:
    """Return a line for each program that does not fit the memory of a chip."""
    lines = []
    for program in (program for rank in ranks for program in rank.programs):
        memory = program.memory or chip.memory
        if memory and program.needed > memory:
            size, what = max(_list_parts(program))
            unit, factor = ("GiB", 1 << 30) if memory >= 1 << 30 else ("MiB", 1 << 20)
            lines.append(
                f"{format_title(program.name)}: {program.needed / factor:.1f} of "
                f"{memory / factor:.1f} {unit}: does not fit "
                f"({what} {format_bytes(size)} at {program.where})"
            )
    return list(dict.fromkeys(lines))


# --- the report ---


def format_report(
    ranks: Sequence[RankReport], num_processes: int, devices: int, chip: Chip
) -> Iterator[str]:
    """Yield the lines of the report.

    Args:
        ranks: what ranks have reported.
        num_processes: number of ranks of the whole job.
        devices: number of devices of each rank.
        chip: the chip to compare with.

    """
    for line in (*find_other_arguments(ranks), *find_other_counts(ranks)):
        yield f"warning: {line}"
    each = f", {format_count(devices, 'device')} each" if devices > 1 else ""
    compiler = f"chip by the compiler for {chip.on}"
    if not chip.on or chip.memory:
        estimate = f" (an estimate for a chip of {chip.on})" if chip.on else ""
        compiler = f"device by XLA's CPU compiler{estimate}"
    alike = group_by_key((tuple(_format_rank(rank, chip)), rank) for rank in ranks)
    for lines, (first, *others) in alike.items():
        yield f"preview of rank {first.rank} of {num_processes}{each}, bytes on a {compiler}:"
        yield from lines
        if others:
            yield f"preview of {format_ranks([rank.rank for rank in others])}: the same programs"


def _format_rank(rank: RankReport, chip: Chip) -> Iterator[str]:
    if not rank.programs:
        yield "  it has compiled no program that spans processes"
    groups = sorted(rank.group_programs().values(), key=lambda group: -_find_largest(group).needed)
    for group in groups[:_MOST_PROGRAMS]:
        yield from _format_program(rank, group)
    if rest := groups[_MOST_PROGRAMS:]:
        most = format_bytes(_find_largest(rest[0]).needed)
        yield f"  {format_count(len(rest), 'other program')}: at most {most}"
    alike = group_by_key(((each.action, each.where), each) for each in rank.checkpoints)
    for (action, where), checkpoints in alike.items():
        done = "not written" if action == "save" else "not read, zeros instead"
        size = format_bytes(max(each.bytes for each in checkpoints))
        yield (
            f"  {action} at {where}: {format_count(len(checkpoints), 'checkpoint')} of {size} of "
            f"this rank's, {done} ({checkpoints[-1].path})"
        )
    for warning in find_warnings(rank, chip):
        yield f"  warning: {warning}"
    if rank.error in _OF_VALUES:
        yield (
            f"  the {rank.error} may come from the preview: programs that span processes return "
            "zeros"
        )


def _format_program(rank: RankReport, group: Sequence[PreviewedProgram]) -> Iterator[str]:
    """Yield lines on a function's programs; their sizes are those of the largest."""
    program = _find_largest(group)
    compiled = f"compiled {len(group)} times, " if len(group) > 1 else ""
    flops = f"; {_format(program.flops / 1e6, 1000, _FLOPS)}" if program.flops >= 1e6 else ""
    parts = [f"{format_bytes(size)} {what}" for size, what in _list_parts(program) if size]
    yield (
        f"  {_name(program)}: {compiled}called {format_count(rank.count_calls(group), 'time')}: "
        f"{' + '.join(parts) or '0 B'} = {format_bytes(program.needed)}{flops}"
    )
    if program.refused:
        yield f"    not compiled for the chip: {program.refused}"
    for axes, found in group_by_key((each.axes, each) for each in program.collectives).items():
        kinds = [f"{format_count(c.count, c.kind)} {format_bytes(c.bytes)}" for c in found]
        total, crossing = sum(c.bytes for c in found), sum(c.crossing for c in found)
        where = "within hosts"
        if crossing:
            where = f"{round(100 * crossing / total)} % of {format_bytes(total)} crosses hosts"
        yield f"    {' and '.join(axes)}{': ' if axes else ''}{', '.join(kinds)}; {where}"


def make_record(ranks: Sequence[RankReport], lines: Sequence[str], chip: Chip) -> dict[str, object]:
    """Return the report for --report."""
    return {
        "lines": list(lines),
        "ranks": [
            {
                "rank": rank.rank,
                "warnings": find_warnings(rank, chip),
                "programs": [
                    {**_make_object(program), "calls": rank.count_calls([program])}
                    for program in rank.programs
                ],
                "checkpoints": [_make_object(each) for each in rank.checkpoints],
            }
            for rank in ranks
        ],
    }


def _make_object(value: object) -> Any:
    """Return a message as JSON has it: an object with a member for each field."""
    if isinstance(value, Nested):
        return {name: _make_object(getattr(value, name)) for name in value._fields}
    return [_make_object(each) for each in value] if isinstance(value, tuple) else value


# --- warnings ---


def find_warnings(rank: RankReport, chip: Chip) -> list[str]:
    """Return what is likely a mistake in a rank's programs, each with the user's line, once."""
    found = [line for program in rank.programs for line in _warn_of_program(program, chip)]
    known = {program.number: program.inputs for program in rank.programs}
    for name, programs in rank.group_programs().items():
        again = [program for program in programs if program.before in known]
        if again:
            now, then = again[-1].inputs, known[again[-1].before]
            changed = "with equal arguments: a static argument or a Python value is another one"
            if differs := _find_difference(now, then):
                changed = f"{differs[0]}, before it was {differs[1].partition(' is ')[2]}"
            found.append(f"{name} was compiled {len(again) + 1} times: {changed}")
    named = {format_title(program.name): _name(program) for program in rank.programs}
    inside = group_by_key(name.partition("/")[::2] for name in dict.fromkeys(rank.rematerialized))
    for title, operations in inside.items():
        found.append(
            f"{named.get(title, 'a program')}: involuntary full rematerialization, each device "
            f"makes the whole array to reshard it: {format_names(operations, 3)}"
        )
    return list(dict.fromkeys(found))


def _warn_of_program(program: PreviewedProgram, chip: Chip) -> Iterator[str]:
    name, memory = _name(program), program.memory or chip.memory
    if empty := [each.name for each in program.inputs if not each.bytes]:
        yield f"{name}: {format_names(empty)} has no rows"
    least = _UNSHARDED * memory if memory else _UNSHARDED_BYTES
    whole = [each for each in program.inputs if each.is_whole and each.bytes > least]
    if whole:
        whole.sort(key=lambda argument: -argument.bytes)
        sizes = [f"{each.name} ({format_bytes(each.bytes)})" for each in whole]
        yield f"{name}: not sharded, whole on each device: {format_names(sizes)}"
    along = {c.axes[0] for c in program.collectives if c.crossing and len(c.axes) == 1}
    if near := sorted(filter(_NEAR.fullmatch, along)):
        yield f"{name}: axis {format_names(near)} crosses hosts"


def _find_difference(
    first: Sequence[ProgramArgument], other: Sequence[ProgramArgument]
) -> tuple[str, str] | None:
    """Return the first argument that differs, in words, as both programs have it; else None."""
    if len(first) != len(other):
        return f"number of arguments is {len(first)}", f"number of arguments is {len(other)}"
    words = (
        tuple(f"{argument.name} is {argument.type} {argument.sharding}" for argument in pair)
        for pair in zip(first, other, strict=True)
    )
    return next(((a, b) for a, b in words if a != b), None)


def find_rematerialized(stderr: str) -> list[str]:
    """Return the operations whose operand the compiler reshards by making it whole."""
    return re.findall(r'Involuntary full rematerialization\..*?op_name="([^"]*)"', stderr)


# --- ranks against each other ---


def find_other_arguments(ranks: Sequence[RankReport]) -> Iterator[str]:
    """Yield the functions that a rank calls with other arguments than the first rank."""
    told: set[str] = set()
    for rank in ranks[1:]:
        has_failed = ranks[0].has_failed or rank.has_failed  # and lacks later programs
        known, own = ranks[0].group_programs(), rank.group_programs()
        for name in [name for name in own if name in known and name not in told]:
            pair = known[name], own[name]
            for place in range((min if has_failed else max)(map(len, pair))):
                first, other = (programs[: place + 1][-1].inputs for programs in pair)
                if name not in told and (differs := _find_difference(first, other)):
                    told.add(name)
                    yield (
                        f"{name}: ranks {ranks[0].rank} and {rank.rank} would run different "
                        f"programs: {differs[0]}, and {differs[1]}"
                    )


def find_other_counts(ranks: Sequence[RankReport]) -> Iterator[str]:
    """Yield the functions that ranks call different numbers of times: some would wait."""
    whole = [rank for rank in ranks if not rank.has_failed]
    for name in dict.fromkeys(name for rank in whole for name in rank.group_programs()):
        counts = group_by_key(
            (rank.count_calls(rank.group_programs().get(name, ())), rank.rank) for rank in whole
        )
        if len(counts) > 1:
            parts = [
                f"{format_ranks(some)} {'call' if len(some) > 1 else 'calls'} it "
                f"{format_count(count, 'time')}"
                for count, some in counts.items()
            ]
            yield f"{name}: {format_names(parts, 4)}: in the job they would wait for each other"


# --- words ---


def format_bytes(size: float) -> str:
    """Return a number of bytes in words, such as `41.4 MiB`."""
    return f"{size} B" if size < 1000 else _format(size / 1024, 1024, ("KiB", "MiB", "GiB"))


def _format(number: float, step: int, units: Sequence[str]) -> str:
    """Return a number of the first unit, in the first unit in which it is less than 1000."""
    unit, *larger = units
    if number < 1000 or not larger:
        return f"{number:.1f} {unit}"
    return _format(number / step, step, larger)


def _list_parts(program: PreviewedProgram) -> list[tuple[int, str]]:
    return [
        (program.arguments, "arguments"),
        (program.outputs, "outputs"),
        (program.temporaries, "temporaries"),
    ]


def _find_largest(programs: Iterable[PreviewedProgram]) -> PreviewedProgram:
    return max(programs, key=lambda program: program.needed)


def _name(program: PreviewedProgram) -> str:
    title = format_title(program.name)
    return f"{title} at {program.where}" if program.where else title

"""Words of a preview's report, and the judgement whether programs fit a chip's memory; pure."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from mcjax_launch.features.preview.messages import Calls, Checkpoint, Collective, PreviewedProgram
from mcjax_launch.journal.programs import format_title
from mcjax_launch.ranks import format_count, format_ranks, group_by_key
from mcjax_launch.wire.codec import Nested
from mcjax_launch.wording import format_names

# Programs to show, those that need most memory first.
_MOST_PROGRAMS = 8
# An argument that is not sharded is worth a warning from these bytes on, and above this share of
# the memory.
_UNSHARDED_BYTES, _UNSHARDED = 256 << 20, 0.1
# Names of axes along which chips should be near each other.
_NEAR = re.compile(r"(tp|tensor|model|mp|mdl)(_?\w*)", re.IGNORECASE)


# Exceptions that a value may have caused which a preview does not know.
_OF_VALUES = ("ZeroDivisionError", "FloatingPointError", "AssertionError")


class RankReport:
    """Report of a rank.

    Attributes:
        programs: its programs, in the order in which they were compiled.
        error: class of the exception that has ended the rank; "" if none has.
        has_failed: True if the rank has ended before its end.
        rematerialized: operations whose operand the compiler reshards by making it whole.

    """

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.programs: list[PreviewedProgram] = []
        self.calls = Calls((), 0, 0)
        self.checkpoints: list[Checkpoint] = []
        self.rematerialized: list[str] = []
        self.error = ""
        self.has_failed = False

    def count_calls(self, program: PreviewedProgram) -> int:
        """Return the number of calls of a program, as far as the rank has reported it."""
        counts = self.calls.counts
        return counts[program.number] if program.number < len(counts) else 0


class Chip:
    """Memory with which programs are compared.

    Args:
        on: value of --on; "" if it is not given.
        memory: bytes; 0 if they are not known.

    """

    def __init__(self, on: str = "", memory: int = 0) -> None:
        self.on = on
        self.memory = memory


# --- what does not fit ---


def find_misfits(ranks: Iterable[RankReport], chip: Chip) -> list[str]:
    """Return a line for each program that does not fit the memory of a chip, and on each peak."""
    lines: dict[str, None] = {}
    for rank in ranks:
        for program in rank.programs:
            memory = program.memory or chip.memory
            if memory and program.needed > memory:
                lines[_describe_misfit(program, memory)] = None
        memory = max([chip.memory, *(program.memory for program in rank.programs)])
        if memory and not lines and rank.calls.peak > memory:
            lines[
                f"{_format_two(rank.calls.peak, memory)} in use during "
                f"{_name(rank.programs[rank.calls.peak_in])}: does not fit"
            ] = None
    return list(lines)


def _describe_misfit(program: PreviewedProgram, memory: int) -> str:
    size, what = max(_list_parts(program))
    largest = f"{what} {format_bytes(size)}"
    where = f" at {program.where}" if program.where else ""
    return (
        f"{format_title(program.name)}: {_format_two(program.needed, memory)}: does not fit "
        f"({largest}{where})"
    )


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
    for line in find_differences(ranks):
        yield f"warning: {line}"
    each = f", {format_count(devices, 'device')} each" if devices > 1 else ""
    alike: dict[tuple[object, ...], list[RankReport]] = defaultdict(list)
    for rank in ranks:
        without_calls = (
            re.sub(r"called \d+ times?", "", line) for line in _format_rank(rank, chip)
        )
        alike[rank.has_failed, *without_calls].append(rank)
    for first, *others in alike.values():
        until = ", until it failed" if first.has_failed else ""
        yield (
            f"preview of rank {first.rank} of {num_processes}{until}{each}"
            f"{_describe_compiler(chip)}:"
        )
        yield from _format_rank(first, chip)
        if others:
            yield f"preview of {format_ranks([rank.rank for rank in others])}: the same programs"


def _describe_compiler(chip: Chip) -> str:
    if not chip.on:
        return ", bytes on a device by XLA's CPU compiler"
    if not chip.memory:
        return f", bytes on a chip by the compiler for {chip.on}"
    return f", bytes on a device by XLA's CPU compiler (an estimate for a chip of {chip.on})"


def _format_rank(rank: RankReport, chip: Chip) -> Iterator[str]:
    if not rank.programs:
        yield "  it has compiled no program that spans processes"
    latest: dict[tuple[str, str], list[PreviewedProgram]] = defaultdict(list)
    for program in rank.programs:
        latest[program.name, program.where].append(program)
    groups = sorted(latest.values(), key=lambda group: -max(p.needed for p in group))
    for group in groups[:_MOST_PROGRAMS]:
        yield from _format_program(rank, group)
    if rest := groups[_MOST_PROGRAMS:]:
        most = format_bytes(max(p.needed for group in rest for p in group))
        yield f"  {format_count(len(rest), 'other program')}: at most {most}"
    if rank.calls.peak:
        at = _name(rank.programs[rank.calls.peak_in])
        yield f"  all arrays together: at most {format_bytes(rank.calls.peak)}, during {at}"
    yield from _format_checkpoints(rank.checkpoints)
    for warning in find_warnings(rank, chip):
        yield f"  warning: {warning}"
    if rank.error in _OF_VALUES:
        yield (
            f"  the {rank.error} may come from the preview: programs that span processes return "
            "zeros"
        )


def _format_checkpoints(checkpoints: Iterable[Checkpoint]) -> Iterator[str]:
    groups: dict[tuple[str, str], list[Checkpoint]] = defaultdict(list)
    for each in checkpoints:
        groups[each.action, each.where].append(each)
    for (action, where), group in groups.items():
        done = "not written" if action == "save" else "not read, zeros instead"
        size = format_bytes(max(each.bytes for each in group))
        yield (
            f"  {action} at {where}: {format_count(len(group), 'checkpoint')} of {size} of this "
            f"rank's, {done} ({group[-1].path})"
        )


def _format_program(rank: RankReport, group: Sequence[PreviewedProgram]) -> Iterator[str]:
    """Yield lines on a function's programs; their sizes are those of the largest."""
    program = max(group, key=lambda each: each.needed)
    calls = sum(rank.count_calls(each) for each in group)
    compiled = f"compiled {len(group)} times, " if len(group) > 1 else ""
    flops = f"; {_format_flops(program.flops)}" if program.flops >= 1e6 else ""
    parts = [(size, what) for size, what in _list_parts(program) if size]
    sizes = " + ".join(f"{format_bytes(size)} {what}" for size, what in parts)
    yield (
        f"  {_name(program)}: {compiled}called {format_count(calls, 'time')}: "
        f"{sizes or '0 B'} = {format_bytes(program.needed)}{flops}"
    )
    if program.refused:
        yield f"    not compiled for the chip: {program.refused}"
    by_axes: dict[tuple[str, ...], list[Collective]] = defaultdict(list)
    for collective in program.collectives:
        by_axes[collective.axes].append(collective)
    for axes, found in by_axes.items():
        yield f"    {_format_collectives(axes, found)}"


def _list_parts(program: PreviewedProgram) -> list[tuple[int, str]]:
    return [
        (program.arguments, "arguments"),
        (program.outputs, "outputs"),
        (program.temporaries, "temporaries"),
    ]


def _format_collectives(axes: Sequence[str], found: Sequence[Collective]) -> str:
    kinds = [f"{format_count(each.count, each.kind)} {format_bytes(each.bytes)}" for each in found]
    total, crossing = sum(c.bytes for c in found), sum(c.crossing for c in found)
    percent = round(100 * crossing / total) if total else 0
    where = f"{percent} % of {format_bytes(total)} crosses hosts" if crossing else "within hosts"
    if axes:
        return f"{' and '.join(axes)}: {', '.join(kinds)}; {where}"
    return f"{', '.join(kinds)}; {where}"


# --- the record ---


def make_record(ranks: Sequence[RankReport], lines: Sequence[str], chip: Chip) -> dict[str, object]:
    """Return the report for --report."""
    return {
        "lines": list(lines),
        "ranks": [
            {
                "rank": rank.rank,
                "peak_bytes": rank.calls.peak,
                "warnings": list(find_warnings(rank, chip)),
                "programs": [
                    {**_make_object(program), "calls": rank.count_calls(program)}
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


def find_warnings(rank: RankReport, chip: Chip) -> Iterable[str]:
    """Return what is likely a mistake in a rank's programs, each with the user's line, once."""
    return dict.fromkeys(_list_warnings(rank, chip))


def _list_warnings(rank: RankReport, chip: Chip) -> Iterator[str]:
    for program in rank.programs:
        name = _name(program)
        if program.empty:
            yield f"{name}: {format_names(program.empty)} has no rows"
        memory = program.memory or chip.memory or program.needed
        least = max(_UNSHARDED_BYTES if not chip.on else 0, _UNSHARDED * memory)
        large = [argument for argument in program.unsharded if argument.bytes > least]
        if large:
            sizes = [f"{a.name} ({format_bytes(a.bytes)})" for a in large]
            yield f"{name}: not sharded, whole on each device: {format_names(sizes)}"
        near = {
            axis
            for collective in program.collectives
            for axis in collective.axes
            if _NEAR.fullmatch(axis) and collective.crossing and len(collective.axes) == 1
        }
        if near:
            yield f"{name}: axis {format_names(sorted(near))} crosses hosts"
    changes: dict[str, list[PreviewedProgram]] = defaultdict(list)
    for program in rank.programs:
        if program.changed:
            changes[_name(program)].append(program)
    for name, programs in changes.items():
        yield f"{name} was compiled {len(programs) + 1} times: {programs[-1].changed}"
    yield from _describe_rematerialized(rank)


def find_differences(ranks: Sequence[RankReport]) -> Iterator[str]:
    """Yield the functions that ranks call with other arguments, or at other times, than others."""
    yield from _find_other_arguments(ranks)
    yield from _find_other_counts([rank for rank in ranks if not rank.has_failed])


def _find_other_counts(ranks: Sequence[RankReport]) -> Iterator[str]:
    """Yield the functions that ranks call different numbers of times: some would wait."""
    names = dict.fromkeys(_name(program) for rank in ranks for program in rank.programs)
    for name in names:
        counts = group_by_key(
            (sum(rank.count_calls(each) for each in rank.programs if _name(each) == name), rank)
            for rank in ranks
        )
        if len(counts) > 1:
            parts = [
                f"{format_ranks([rank.rank for rank in some])} "
                f"{'call' if len(some) > 1 else 'calls'} it {format_count(count, 'time')}"
                for count, some in counts.items()
            ]
            yield f"{name}: {format_names(parts, 4)}: in the job they would wait for each other"


def _find_other_arguments(ranks: Sequence[RankReport]) -> Iterator[str]:
    told: set[str] = set()
    first: dict[str, PreviewedProgram] = {}
    for rank in ranks:
        alike: dict[str, set[tuple[str, ...]]] = defaultdict(set)
        for program in rank.programs:
            alike[_name(program)].add(program.inputs)
        for program in rank.programs:
            name = _name(program)
            other = first.setdefault(name, program)
            if name in told or program.inputs == other.inputs or other.inputs in alike[name]:
                continue
            told.add(name)
            yield (
                f"{name}: ranks {ranks[0].rank} and {rank.rank} would run different programs: "
                f"{_describe_difference(other.inputs, program.inputs)}"
            )


def _describe_difference(first: Sequence[str], other: Sequence[str]) -> str:
    pairs = zip(first, other, strict=False)
    differs = next(((a, b) for a, b in pairs if a != b), None)
    if differs is None:
        return f"with {len(first)} and {len(other)} arguments"
    return f"{differs[0]}, and {differs[1]}"


def _describe_rematerialized(rank: RankReport) -> Iterator[str]:
    """Yield a line for each program in which the compiler makes whole arrays to reshard them."""
    named = {format_title(program.name): _name(program) for program in rank.programs}
    operations: dict[str, list[str]] = defaultdict(list)
    for name in dict.fromkeys(rank.rematerialized):
        title, _, operation = name.partition("/")
        operations[named.get(title, "a program")].append(operation or title)
    for title, inside in operations.items():
        yield (
            f"{title}: involuntary full rematerialization, each device makes the whole array to "
            f"reshard it: {format_names(inside, 3)}"
        )


_REMATERIALIZED = "Involuntary full rematerialization."


def find_rematerialized(stderr: str) -> list[str]:
    """Return the operations whose operand the compiler reshards by making it whole."""
    told = (line.partition(_REMATERIALIZED)[2] for line in stderr.splitlines())
    return [found[1] for found in (re.search(r'op_name="([^"]*)"', line) for line in told) if found]


# --- words ---


def format_bytes(size: float) -> str:
    """Return a number of bytes in words, such as `41.4 MiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1000 or unit == "GiB":
            break
        size /= 1024
    return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"


def _format_two(size: int, memory: int) -> str:
    """Return a size of two, in the unit of the second, as `18.1 of 16.0 GiB`."""
    unit, factor = ("GiB", 1 << 30) if memory >= 1 << 30 else ("MiB", 1 << 20)
    return f"{size / factor:.1f} of {memory / factor:.1f} {unit}"


def _format_flops(flops: float) -> str:
    for unit in ("MFLOP", "GFLOP", "TFLOP"):
        flops /= 1e6 if unit == "MFLOP" else 1e3
        if flops < 1000 or unit == "TFLOP":
            break
    return f"{flops:.1f} {unit}"


def _name(program: PreviewedProgram) -> str:
    title = format_title(program.name)
    return f"{title} at {program.where}" if program.where else title

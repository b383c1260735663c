"""Descriptions of a divergence: which programs ranks ran, and how their code differs; pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice, zip_longest

from mcjax_launch.ranks import format_ranks, group_by_key
from mcjax_launch.runs.spmd import Comparison, DivergedGroup, RanProgram
from mcjax_launch.wire import source_lines
from mcjax_launch.wire.value import Value

# --- the code of two programs ---

_MOST_ARGUMENTS = 3
_LONGEST = 120
# The operation that a constant is made for is at most this many differing operations later.
_NEAR = 2
# At most this many locations of an operation are read, and this many aliases.
_MOST_PLACES = 256
_ALIAS = re.compile(r"(#loc\d*) = loc\((.*)\)")
_PLACE = re.compile(r'"([^"]+)":(\d+):\d+|(#loc\d*)')
_TENSOR = re.compile(r"tensor<((?:\d++x)*+)([\w.]+)>")
_FLOAT = re.compile(r"(?<!\d)-?\d++\.\d++[eE][-+]?\d+")
_SHARDING = re.compile(
    r'(?:sdy\.sharding = #sdy\.sharding<@\w+, |mhlo\.sharding = ")(\[[^\]=]*\]|(?<=")[^"]*)'
)
_RESULTS = re.compile(r"^%[\w:]+(?:, %[\w:]+)* = ")
_KEY_WORDS = re.compile(r"applies (?:\w++\.)*+(\w++) across|(@\w+)")
_CONSTANT = re.compile(
    r'"?[\w.]+\.constant (?:\{mcjax\.values = "([^"]*)"\} \S+|dense<(.*)>) : (.*)$'
)


class Argument(Value):
    """An argument of a program: name in the function, shape with type, sharding ("" for none)."""

    name: str
    shape: str
    sharding: str


class Operation(Value):
    """An operation in StableHLO's text, and its line in the user's code; "" if unknown."""

    text: str
    where: str


_NOTHING = Operation("nothing more", "")


class ParsedCode(Value):
    """The parsed code of a program; `devices` is the comment line that names its devices, or ""."""

    devices: str
    arguments: tuple[Argument, ...]
    operations: tuple[Operation, ...]

    @property
    def text(self) -> str:
        """The code without source locations, to compare two programs line by line."""
        lines = (operation.text for operation in self.operations)
        return "".join(f"{line}\n" for line in (self.devices, *lines))


def parse_code(text: str) -> ParsedCode:
    """Parse a program's StableHLO text with source locations, as received from a rank."""
    lines = text.splitlines()
    aliases = {alias[1]: alias[2] for line in lines if (alias := _ALIAS.match(line))}
    devices = lines[0] if lines and lines[0].startswith("//") else ""
    arguments: tuple[Argument, ...] = ()
    operations = []
    for line in lines:
        if line.startswith(("#loc", "//")):
            continue
        if "func.func public @main(" in line:
            arguments = tuple(_parse_arguments(line, aliases))
        location = line.partition(" loc(")[2] if line.endswith(")") else ""
        where = _find_line(location.removesuffix(")"), aliases)
        operations.append(Operation(_without_locations(line), where))
    return ParsedCode(devices, arguments, tuple(operations))


def find_code_differences(first: ParsedCode, second: ParsedCode) -> Iterator[tuple[str, str, str]]:
    """Yield differences of two programs as (subject, first's value, second's value).

    The subject is "" for operations and devices.
    """
    if len(first.arguments) != len(second.arguments):
        yield "arguments", _format_names(first), _format_names(second)
        return
    pairs = list(zip(first.arguments, second.arguments, strict=True))
    shapes = [(ours, theirs) for ours, theirs in pairs if ours.shape != theirs.shape]
    shardings = [(ours, theirs) for ours, theirs in pairs if ours.sharding != theirs.sharding]
    for ours, theirs in shapes[:_MOST_ARGUMENTS]:
        yield f"argument {ours.name}", ours.shape, theirs.shape
    for ours, theirs in shardings[:_MOST_ARGUMENTS]:
        sharding = f"sharding of argument {ours.name}"
        yield sharding, ours.sharding or "none", theirs.sharding or "none"
    if shapes or shardings:  # the operations follow from these
        return
    if pair := _find_first_difference(
        zip_longest(first.operations, second.operations, fillvalue=_NOTHING)
    ):
        yield "", *_describe_difference(*pair)
    elif first.devices != second.devices:
        yield "", first.devices.removeprefix("// "), second.devices.removeprefix("// ")


def _find_first_difference(
    pairs: Iterable[tuple[Operation, Operation]],
) -> tuple[Operation, Operation] | None:
    """Return the first operations that differ; None if all are equal.

    If both are constants, prefer the differing operations just after them, which may use them.
    """
    differing = ((ours, theirs) for ours, theirs in pairs if ours.text != theirs.text)
    first = next(differing, None)
    if first is not None and all(".constant" in operation.text for operation in first):
        for ours, theirs in islice(differing, _NEAR):
            # As the 0 of a sum, and the -inf of a maximum.
            if ".constant" not in ours.text and _format_operation_name(
                ours.text
            ) != _format_operation_name(theirs.text):
                return ours, theirs
    return first


def _format_names(code: ParsedCode) -> str:
    return ", ".join(argument.name for argument in code.arguments) or "none"


# --- out of a text ---


def _parse_arguments(line: str, aliases: Mapping[str, str]) -> Iterator[Argument]:
    """Yield the arguments of the main function, parsed from its first line."""
    inside = line.partition("@main(")[2].partition(") -> (")[0]
    for number, piece in enumerate(re.split(r"%arg\d+: ", inside)[1:]):
        tensor, sharding = _TENSOR.match(piece), _SHARDING.search(piece)
        named = re.search(r'loc\("((?:[^"\\]|\\.)*)"\)|loc\((#loc\d*)\)', piece)
        name = named and (named[1] or aliases.get(named[2], "").strip('"'))
        yield Argument(
            name or str(number),
            _format_shape(tensor) if tensor else piece.partition(" ")[0],
            _format_sharding(sharding[1]) if sharding else "",
        )


def _format_sharding(sharding: str) -> str:
    """Return a sharding in JAX's notation, such as `P('data', None)`; unknown forms unchanged."""
    if not sharding.startswith("["):
        return sharding
    axes = [re.findall(r'"([^"]+)"', part) for part in re.findall(r"\{([^{}]*)\}", sharding)]
    parts = [
        repr(tuple(names)) if len(names) > 1 else repr(names[0]) if names else "None"
        for names in axes
    ]
    return f"P({', '.join(parts)})"


def _find_line(location: str, aliases: Mapping[str, str]) -> str:
    """Return `file:line` of a location's innermost user line, else its innermost; "" if none."""
    places = list(islice(_iterate_places(location, aliases), _MOST_PLACES))
    own = (f for f in places if source_lines.find_owner(f[0]) == source_lines.USER)
    name, line = next(own, places[0] if places else ("", ""))
    return f"{name}:{line}" if name else ""


def _iterate_places(location: str, aliases: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the (file, line) pairs in a location, following each alias once.

    An alias may stand for several locations, itself included.
    """
    ahead, seen = [_PLACE.finditer(location)], set[str]()
    while ahead:
        match = next(ahead[-1], None)
        if match is None:
            ahead.pop()
        elif match[3] is None:
            yield match[1], match[2]
        elif match[3] not in seen and len(seen) < _MOST_PLACES:
            seen.add(match[3])
            ahead.append(_PLACE.finditer(aliases.get(match[3], "")))


def _without_locations(line: str) -> str:
    """Return a line without the source locations in it.

    The pattern relies on strings in a location having no brackets.
    """
    return re.sub(r' loc\((?:[^()"]|"(?:[^"\\]|\\.)*"|\((?:[^()"]|"[^"]*")*\))*\)', "", line)


# --- two operations, in words ---


def _describe_difference(ours: Operation, theirs: Operation) -> tuple[str, str]:
    """Return two operations in words, each with its source line if known.

    The names are shown if they differ, else the texts, cut around the first difference.
    """
    shown = _format_operation_name(ours.text), _format_operation_name(theirs.text)
    if shown[0] == shown[1]:
        whole = _format_operation(ours.text), _format_operation(theirs.text)
        shown = _cut(*whole)
    places = (f" at {operation.where}" if operation.where else "" for operation in (ours, theirs))
    first, second = (f"{text}{place}" for text, place in zip(shown, places, strict=True))
    return first, second


def _format_operation_name(text: str) -> str:
    """Return an operation's name, with its reduction, callee or constant value if any."""
    line = _RESULTS.sub("", text.strip())
    name = line.partition(" ")[0].partition("(")[0].strip('"')
    if name.endswith(".constant") and (constant := _CONSTANT.match(_format_operation(text))):
        return f"{name} {constant[1] or constant[2]} {constant[3]}"
    words = _KEY_WORDS.search(line)
    return f"{name} {words[1] or words[2]}" if words else name


def _format_operation(text: str) -> str:
    """Return the whole text of an operation, with types and numbers in JAX's notation."""
    line = _TENSOR.sub(_format_shape, _RESULTS.sub("", text.strip()))
    return _FLOAT.sub(lambda number: f"{float(number[0]):g}", line)


def _format_shape(tensor: re.Match[str]) -> str:
    sizes = tensor[1].rstrip("x").split("x") if tensor[1] else []
    return f"{'bool' if tensor[2] == 'i1' else tensor[2]}[{','.join(sizes)}]"


def _cut(first: str, second: str) -> tuple[str, str]:
    """Cut two long lines to the part around the first place at which they differ."""
    if max(len(first), len(second)) <= _LONGEST:
        return first, second
    at = next(
        (place for place, (a, b) in enumerate(zip(first, second, strict=False)) if a != b),
        min(len(first), len(second)),
    )
    begin = max(0, at - _LONGEST // 2)

    def cut(line: str) -> str:
        end = " ..." if begin + _LONGEST < len(line) else ""
        name = line.partition(" ")[0].partition("(")[0]
        return f"{f'{name} ... ' if begin else ''}{line[begin : begin + _LONGEST]}{end}"

    return cut(first), cut(second)


# --- where ranks ran different programs ---

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
        *([order] if order else _describe_code_differences(comparison, sides)),
    ]
    for same in groups.values():
        if len(same) > 1 and not more:  # only their code differs, and is not known
            between = " · ".join(format_ranks(side.ranks) for side in same[:_MOST_GROUPS])
            lines.append(
                f"same name and shapes, different code on {between}: an operation, a Python "
                "value in it (a seed, a setting, process_index()), sharding or device order"
            )
    return lines + more


def describe_unequal_argument(comparison: Comparison) -> list[str]:
    """Describe the argument that differs between ranks, which must exist, with a hint."""
    unequal = comparison.checksums.unequal
    assert unequal is not None
    program, code = unequal.program, comparison.codes.get(unequal.program.fingerprint)
    arguments = parse_code(code.text).arguments if code is not None and code.text else ()
    name = f"argument {unequal.argument + 1}"
    if unequal.argument < len(arguments):
        argument = arguments[unequal.argument]
        name = f"argument {argument.name} {argument.shape}"
    groups = " · ".join(format_ranks(ranks) for ranks in unequal.groups[:_MOST_GROUPS])
    at = f" at {program.where}" if program.where else ""
    return [
        f"{program.title}{at}: {name} is replicated, and differs between {groups}",
        "hint: each process made it from its own values (a seed, process_index(), data that it "
        "read); JAX assumes that its value is the same on all processes",
    ]


def _describe_action(side: DivergedGroup, shown: Collection[int]) -> str:
    program = side.program
    if program is None:
        return "finished without it" if side.over else "not there yet"
    shapes = [program.shapes[index] for index in shown if index < len(program.shapes)]
    if omitted := len(program.shapes) - len(shapes):
        shapes.append(f"(and {omitted} more)")
    what = " ".join(filter(None, (program.where, program.title, *shapes)))
    if side.again and not program.name:
        return f"stopped at {program.where} instead, in a program that they had run before"
    return f"ran {what} again instead" if side.again else what


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
        if side.program is not None and not side.again:
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
    known = [(side, side.program) for side in sides if side.program is not None and not side.again]
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


def _describe_code_differences(comparison: Comparison, sides: Sequence[DivergedGroup]) -> list[str]:
    """Describe differences in the code of the groups' programs, where the code has arrived."""
    known = []
    for side, program in list_new_programs(sides):
        code = comparison.codes.get(program.fingerprint)
        if code is not None and code.complete and code.text:
            known.append((format_ranks(side.ranks), parse_code(code.text)))
    lines: dict[tuple[str, str], list[str]] = {}
    for ranks, other in known[1:_MOST_GROUPS]:
        for what, usual, theirs in find_code_differences(known[0][1], other):
            lines.setdefault((what, usual), []).append(f"{ranks}: {theirs}")
    return [
        f"{what or 'they differ at'}: {known[0][0]}: {usual} · {' · '.join(others)}"
        for (what, usual), others in lines.items()
    ]

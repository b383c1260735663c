"""Differences between the code of two programs, in words; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice, zip_longest

from mcjax_launch.wire import source_lines
from mcjax_launch.wire.value import Value

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
_CALLBACK = re.compile(r"custom_call @\w*callback")
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
    callbacks = _list_callbacks(first), _list_callbacks(second)
    if len(callbacks[0]) != len(callbacks[1]):  # all else that differs follows from it
        yield "", _format_callbacks(callbacks[0]), _format_callbacks(callbacks[1])
    elif pair := _find_first_difference(
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


def _list_callbacks(code: ParsedCode) -> list[str]:
    """Return the lines of the calls of Python functions in a program."""
    return [each.where for each in code.operations if _CALLBACK.search(each.text)]


def _format_callbacks(lines: list[str]) -> str:
    if not lines:
        return "no callback"
    known = list(dict.fromkeys(filter(None, lines)))[:_MOST_ARGUMENTS]
    return "a callback (jax.debug.print or the like)" + (f" at {', '.join(known)}" if known else "")


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

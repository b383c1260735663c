"""The code of two programs, and in what they part; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice, zip_longest

from mcjax_launch.kernel.wire import source_lines
from mcjax_launch.kernel.wire.value import Value

_MOST_ARGUMENTS = 3
_LONGEST = 120
# So many differing operations after a constant one that it is made for may come.
_NEAR = 2
# So many places of an operation are looked at, and so many aliases.
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
    """An argument of a program: its name in the function, its shape and type, and its sharding."""

    name: str
    shape: str
    sharding: str


class Operation(Value):
    """An operation, as StableHLO writes it, and the user's line that it comes from."""

    text: str
    where: str


_NOTHING = Operation("nothing more", "")


class ProgramCode(Value):
    """What a program is made of."""

    devices: str
    arguments: tuple[Argument, ...]
    operations: tuple[Operation, ...]

    @property
    def text(self) -> str:
        """Its text without places, so that two of them can be compared line by line."""
        lines = (operation.text for operation in self.operations)
        return "".join(f"{line}\n" for line in (self.devices, *lines))


def parsed(text: str) -> ProgramCode:
    """The code of a program from its text with places, as a rank has shown it."""
    lines = text.splitlines()
    aliases = {alias[1]: alias[2] for line in lines if (alias := _ALIAS.match(line))}
    devices = lines[0] if lines and lines[0].startswith("//") else ""
    arguments: tuple[Argument, ...] = ()
    operations = []
    for line in lines:
        if line.startswith(("#loc", "//")):
            continue
        if "func.func public @main(" in line:
            arguments = tuple(_arguments(line, aliases))
        location = line.partition(" loc(")[2] if line.endswith(")") else ""
        where = _where(location.removesuffix(")"), aliases)
        operations.append(Operation(_without_locations(line), where))
    return ProgramCode(devices, arguments, tuple(operations))


def difference(first: ProgramCode, second: ProgramCode) -> Iterator[tuple[str, str, str]]:
    """In what two programs part: what it is, and how it is in the first and in the second."""
    if len(first.arguments) != len(second.arguments):
        yield "arguments", _names(first), _names(second)
        return
    pairs = list(zip(first.arguments, second.arguments, strict=True))
    shapes = [(one, other) for one, other in pairs if one.shape != other.shape]
    shardings = [(one, other) for one, other in pairs if one.sharding != other.sharding]
    for one, other in shapes[:_MOST_ARGUMENTS]:
        yield f"argument {one.name}", one.shape, other.shape
    for one, other in shardings[:_MOST_ARGUMENTS]:
        yield f"sharding of argument {one.name}", one.sharding or "none", other.sharding or "none"
    if shapes or shardings:  # the operations follow from these
        return
    if pair := _parting(zip_longest(first.operations, second.operations, fillvalue=_NOTHING)):
        yield "", *_apart(*pair)
    elif first.devices != second.devices:
        yield "", first.devices.removeprefix("// "), second.devices.removeprefix("// ")


def _parting(
    pairs: Iterable[tuple[Operation, Operation]],
) -> tuple[Operation, Operation] | None:
    """The first operations that differ; before a constant the one that it may be made for."""
    differing = ((ours, theirs) for ours, theirs in pairs if ours.text != theirs.text)
    first = next(differing, None)
    if first is not None and all(".constant" in one.text for one in first):
        for ours, theirs in islice(differing, _NEAR):
            # As the 0 of a sum, and the -inf of a maximum.
            if ".constant" not in ours.text and _short(ours.text) != _short(theirs.text):
                return ours, theirs
    return first


def _names(code: ProgramCode) -> str:
    return ", ".join(argument.name for argument in code.arguments) or "none"


# --- out of a text ---


def _arguments(line: str, aliases: Mapping[str, str]) -> Iterator[Argument]:
    """The arguments of the main function, from the line that begins it."""
    inside = line.partition("@main(")[2].partition(") -> (")[0]
    for number, piece in enumerate(re.split(r"%arg\d+: ", inside)[1:]):
        tensor, sharding = _TENSOR.match(piece), _SHARDING.search(piece)
        named = re.search(r'loc\("((?:[^"\\]|\\.)*)"\)|loc\((#loc\d*)\)', piece)
        name = named and (named[1] or aliases.get(named[2], "").strip('"'))
        yield Argument(
            name or str(number),
            _shape(tensor) if tensor else piece.partition(" ")[0],
            _spec(sharding[1]) if sharding else "",
        )


def _spec(sharding: str) -> str:
    """A sharding as JAX's users write it: P('data', None); others as they are."""
    if not sharding.startswith("["):
        return sharding
    axes = [re.findall(r'"([^"]+)"', part) for part in re.findall(r"\{([^{}]*)\}", sharding)]
    parts = [
        repr(tuple(names)) if len(names) > 1 else repr(names[0]) if names else "None"
        for names in axes
    ]
    return f"P({', '.join(parts)})"


def _where(location: str, aliases: Mapping[str, str]) -> str:
    """The innermost place in a location that is the user's, else the innermost one."""
    places = list(islice(_places(location, aliases), _MOST_PLACES))
    own = (f for f in places if source_lines.owner(f[0]) == source_lines.USER)
    name, line = next(own, places[0] if places else ("", ""))
    return f"{name}:{line}" if name else ""


def _places(location: str, aliases: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The places in a location, of each alias once: it may stand for others, and for itself."""
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
    """A line of a text without the places in it; strings that a location holds have no brackets."""
    return re.sub(r' loc\((?:[^()"]|"(?:[^"\\]|\\.)*"|\((?:[^()"]|"[^"]*")*\))*\)', "", line)


# --- for a person ---


def _apart(ours: Operation, theirs: Operation) -> tuple[str, str]:
    """Two operations, as short as they can be and still differ, with their lines."""
    shown = _short(ours.text), _short(theirs.text)
    if shown[0] == shown[1]:
        whole = _whole(ours.text), _whole(theirs.text)
        shown = _cut(*whole)
    places = (f" at {one.where}" if one.where else "" for one in (ours, theirs))
    first, second = (f"{text}{place}" for text, place in zip(shown, places, strict=True))
    return first, second


def _short(text: str) -> str:
    """The name of an operation, and of what it reduces by or calls."""
    line = _RESULTS.sub("", text.strip())
    name = line.partition(" ")[0].partition("(")[0].strip('"')
    if name.endswith(".constant") and (constant := _CONSTANT.match(_whole(text))):
        return f"{name} {constant[1] or constant[2]} {constant[3]}"
    words = _KEY_WORDS.search(line)
    return f"{name} {words[1] or words[2]}" if words else name


def _whole(text: str) -> str:
    """All of an operation, with types and numbers as JAX's users know them."""
    line = _TENSOR.sub(_shape, _RESULTS.sub("", text.strip()))
    return _FLOAT.sub(lambda number: f"{float(number[0]):g}", line)


def _shape(tensor: re.Match[str]) -> str:
    sizes = tensor[1].rstrip("x").split("x") if tensor[1] else []
    return f"{'bool' if tensor[2] == 'i1' else tensor[2]}[{','.join(sizes)}]"


def _cut(first: str, second: str) -> tuple[str, str]:
    """Two long lines around the first place in which they differ."""
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

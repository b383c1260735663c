"""Collectives in a compiled program: their kinds, sizes, axes, and the part that crosses hosts."""

from __future__ import annotations

import math
import re
from collections import defaultdict

from ....hook.spmd_program import find_groups
from ....wire.value import Value
from ..messages import Collective

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_BEGIN = re.compile(r"(?:ENTRY )?%?([\w.\-]+) \(.*\{$")
_COLLECTIVE = re.compile(
    r"(\(.*?\)|\S+) (all-reduce|all-gather|reduce-scatter|(?:ragged-)?all-to-all"
    r"|collective-permute|collective-broadcast)(-start)?\("
)
_CALLED = re.compile(
    r"(body|condition|calls|to_apply|branch_computations|called_computations)"
    r"=(%?[\w.\-]+|\{[^{}]*\})"
)
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"')
_SHAPE = re.compile(r"\b(pred|bf16|[a-z]\d\w*)\[([\d,]*)\]")
_BITS = re.compile(r"\d+")


class Layout(Value):
    """Places of a program's devices, in the order in which the program numbers them.

    Args:
        hosts: number of each device's host.
        axes: names of the axes of the program's mesh; () if it has none.
        coordinates: position of each device along these axes.

    """

    hosts: tuple[int, ...]
    axes: tuple[str, ...] = ()
    coordinates: tuple[tuple[int, ...], ...] = ()


def find_collectives(text: str, layout: Layout) -> tuple[Collective, ...]:
    """Return the collectives of a compiled program, given as HLO text, those of a loop repeated."""
    found: defaultdict[tuple[str, tuple[str, ...]], list[float]] = defaultdict(lambda: [0, 0, 0.0])
    for operation, count in _list_operations(text):
        match = _COLLECTIVE.match(operation.partition(" = ")[2])
        if match is None or "is_host_transfer=true" in operation:
            continue
        groups = [group for group in find_groups(operation, len(layout.hosts)) if len(group) > 1]
        if not groups:
            continue
        size = _compute_bytes(match[1], match[2], bool(match[3]), len(groups[0]))
        total = found[match[2], _find_axes(groups, layout)]
        total[0] += count
        total[1] += count * size
        total[2] += count * size * _compute_crossing_share(groups, layout.hosts)
    return tuple(
        Collective(kind, axes, int(count), int(size), int(crossing))
        for (kind, axes), (count, size, crossing) in sorted(found.items())
    )


def _list_operations(text: str) -> Iterator[tuple[str, int]]:
    """Yield each operation that may be a collective, and how often a call of the program runs it.

    A loop whose length is not known counts once.
    """
    bodies: defaultdict[str, list[str]] = defaultdict(list)
    name = entry = ""
    for line in text.splitlines():
        begin = _BEGIN.match(line)
        if begin is not None:
            name = begin[1]
            entry = name if line.startswith("ENTRY") else entry
        elif name:
            bodies[name].append(line)
    left = [(entry, 1)]
    while left:
        name, count = left.pop()
        for line in bodies[name]:
            yield line, count
            trips = _TRIPS.search(line)
            for kind, called in _CALLED.findall(line):
                repeated = int(trips[1]) if trips is not None and kind == "body" else 1
                names = re.findall(r"[\w.\-]+", called)
                left += [(each, count * repeated) for each in names if each in bodies]


def _compute_bytes(shapes: str, kind: str, is_start: bool, group: int) -> int:
    """Return the bytes of a collective's result on one device; of a reduce-scatter its operand.

    Args:
        shapes: type of the operation's value, with several for a tuple.
        kind: XLA's name.
        is_start: True for an operation whose value has the operands too.
        group: number of devices that communicate.

    """
    sizes = [_compute_shape_bytes(*shape) for shape in _SHAPE.findall(shapes)]
    if is_start and kind == "collective-permute":
        sizes = sizes[1:2]
    elif is_start and kind != "all-reduce":
        sizes = sizes[len(sizes) // 2 :]
    return sum(sizes) * (group if kind == "reduce-scatter" else 1)


def _compute_shape_bytes(kind: str, dimensions: str) -> int:
    bits = _BITS.search(kind)
    each = int(bits[0]) if bits is not None else 8  # pred
    return math.prod(int(size) for size in dimensions.split(",") if size) * each // 8


def _find_axes(groups: Sequence[Sequence[int]], layout: Layout) -> tuple[str, ...]:
    """Return the axes of the mesh along which the devices of a group differ."""
    if not layout.axes:
        return ()
    varying: set[int] = set()
    for group in groups:
        for values in [layout.coordinates[place] for place in group[1:]]:
            first = layout.coordinates[group[0]]
            varying |= {axis for axis, value in enumerate(values) if value != first[axis]}
    return tuple(name for axis, name in enumerate(layout.axes) if axis in varying)


def _compute_crossing_share(groups: Sequence[Sequence[int]], hosts: Sequence[int]) -> float:
    """Return the share of the data of a device's group that other hosts' devices have."""
    crossing = total = 0
    for group in groups:
        count: defaultdict[int, int] = defaultdict(int)
        for place in group:
            count[hosts[place]] += 1
        crossing += sum(here * (len(group) - here) for here in count.values())
        total += len(group) * (len(group) - 1)
    return crossing / total

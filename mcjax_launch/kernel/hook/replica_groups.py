"""Whether the processes of a compiled program exchange anything; pure."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_GROUPS = (
    r", replica_groups=(\{\}|\{\{[\d,{} ]*\}\}|\[[\d,]+\]<=\[[\d,]+\](?:T\([\d,]+\))?"
    r"|mesh\[[^\[\]]*\](?:, device_ids=\(\[[\d,]+\]T\([\d,]+\)\))? \{[^{}]*\})(?=,|\s|$)"
)
_EXCHANGING = (
    r" (?:all-reduce|all-gather|reduce-scatter|(?:ragged-)?all-to-all|collective-permute"
    r"|collective-broadcast|send|recv)(?:-start)?\(.*"
)
_PAIRS = r", source_target_pairs=\{(\{[\d,{} ]*\})\}"
_TO_HOST = "is_host_transfer=true"


def exchanges(text: str, places: Sequence[int]) -> bool:
    """Whether a program makes processes exchange anything.

    Args:
        text: of the compiled program.
        places: the process of each of its devices, by which its groups count.

    """
    import re

    for operation in set(re.findall(_EXCHANGING, text)):
        if _TO_HOST in operation:
            continue
        pairs, listed = re.search(_PAIRS, operation), re.search(_GROUPS, operation)
        groups: list[Sequence[int]] = []
        if pairs is not None:
            groups = _listed(pairs[1])
        elif listed is not None:
            groups = _groups(listed[1], len(places))
        # One that is written in a way that we do not know may exchange with anybody.
        if not groups or any(len(_at(group, places)) > 1 for group in groups):
            return True
    return False


def _at(group: Sequence[int], places: Sequence[int]) -> set[int]:
    """The processes of a group."""
    return {places[place] for place in group if place < len(places)}


def _groups(text: str, count: int) -> list[Sequence[int]]:
    """The groups of devices in one of the ways to write them."""
    if text == "{}":
        return [range(count)]
    if text.startswith("{{"):
        return _listed(text)
    if text.startswith("mesh"):
        return _along_axes(text)
    shape, _, rest = text.partition("<=")  # [2,4]<=[4,2]T(1,0)
    sizes, _, order = (_numbers(part) for part in rest.partition("T"))
    return _cut(sizes, order or range(len(sizes)), _numbers(shape)[-1])


def _listed(text: str) -> list[Sequence[int]]:
    """As {{0,1},{2,3}}."""
    import re

    return [_numbers(group) for group in re.findall(r"\{([\d, ]+)\}", text)]


def _along_axes(text: str) -> list[Sequence[int]]:
    """As mesh['a'=2,'b'=4] {'b'}, or mesh['a'=2,'b'=4], device_ids=([4,2]T(1,0)) {'b'}."""
    import re

    axes, _, along = text.partition("]")
    numbering, _, along = along.partition("{")
    sizes = {name: int(size) for name, size in re.findall(r"'([^']*)'=(\d+)", axes)}
    inner = re.findall(r"'([^']*)'", along)
    if not sizes.keys() >= set(inner) or ":" in along:  # parts of axes
        return []
    names = list(sizes)
    order = sorted(range(len(names)), key=lambda axis: names[axis] in inner)
    size = 1
    for name in inner:
        size *= sizes[name]
    groups = _cut(list(sizes.values()), order, size)
    if "device_ids" not in numbering:
        return groups
    shape, _, turned = numbering.partition("T")
    [devices] = _cut(_numbers(shape), _numbers(turned), 0)
    return [[devices[place] for place in group] for group in groups]


def _cut(sizes: Sequence[int], order: Iterable[int], size: int) -> list[Sequence[int]]:
    """Groups of so many devices, 0 for all, as they follow each other along axes in this order."""
    steps: dict[int, int] = {}
    step = 1
    for axis in reversed(range(len(sizes))):
        steps[axis], step = step, step * sizes[axis]
    devices = [0]
    for axis in order:
        devices = [first + at * steps[axis] for first in devices for at in range(sizes[axis])]
    size = size or len(devices)
    return [devices[at : at + size] for at in range(0, len(devices), size)]


def _numbers(text: str) -> list[int]:
    import re

    return [int(number) for number in re.findall(r"\d+", text)]

"""Compiled programs that span processes: which of them communicate, and what they are called."""

from __future__ import annotations

import math

from ..wire import source_lines
from . import user_lines

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

# --- whether a program's processes communicate ---

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
    """Return whether a compiled program makes processes communicate.

    Args:
        text: the compiled program, as HLO text.
        places: process number of each of its devices, in the order in which its groups number them.

    """
    import re

    for operation in set(re.findall(_EXCHANGING, text)):
        if _TO_HOST in operation:
            continue
        groups = find_groups(operation, len(places))
        processes = ({places[place] for place in g if place < len(places)} for g in groups)
        # An unknown notation may stand for any processes.
        if not groups or any(len(group) > 1 for group in processes):
            return True
    return False


def find_groups(operation: str, count: int) -> list[Sequence[int]]:
    """Return the groups of devices that communicate in an operation; [] if they are not known.

    Args:
        operation: the operation, as HLO text; a pair of source and target is a group.
        count: number of the program's devices.

    """
    import re

    pairs, listed = re.search(_PAIRS, operation), re.search(_GROUPS, operation)
    if pairs is not None:
        return _parse_listed_groups(pairs[1])
    return _parse_groups(listed[1], count) if listed is not None else []


def _parse_groups(text: str, count: int) -> list[Sequence[int]]:
    """Parse groups of device numbers, written in any of HLO's notations."""
    if text == "{}":
        return [range(count)]
    if text.startswith("{{"):
        return _parse_listed_groups(text)
    if text.startswith("mesh"):
        return _parse_mesh_groups(text)
    shape, _, rest = text.partition("<=")  # [2,4]<=[4,2]T(1,0)
    sizes, _, order = (_parse_numbers(part) for part in rest.partition("T"))
    return _cut(sizes, order or range(len(sizes)), _parse_numbers(shape)[-1])


def _parse_listed_groups(text: str) -> list[Sequence[int]]:
    """Parse groups of device numbers written as {{0,1},{2,3}}."""
    import re

    return [_parse_numbers(group) for group in re.findall(r"\{([\d, ]+)\}", text)]


def _parse_mesh_groups(text: str) -> list[Sequence[int]]:
    """Parse groups of device numbers written along mesh axes; [] for parts of axes.

    Notations: mesh['a'=2,'b'=4] {'b'}, or mesh['a'=2,'b'=4], device_ids=([4,2]T(1,0)) {'b'}.
    """
    import re

    axes, _, along = text.partition("]")
    numbering, _, along = along.partition("{")
    sizes = {name: int(size) for name, size in re.findall(r"'([^']*)'=(\d+)", axes)}
    inner = re.findall(r"'([^']*)'", along)
    if not sizes.keys() >= set(inner) or ":" in along:  # parts of axes
        return []
    names = list(sizes)
    order = sorted(range(len(names)), key=lambda axis: names[axis] in inner)
    groups = _cut(list(sizes.values()), order, math.prod(sizes[name] for name in inner))
    if "device_ids" not in numbering:
        return groups
    shape, turned = (_parse_numbers(part) for part in numbering.split("T"))
    [devices] = _cut(shape, turned, math.prod(shape))
    return [[devices[place] for place in group] for group in groups]


def _cut(sizes: Sequence[int], order: Sequence[int], size: int) -> list[Sequence[int]]:
    """Return devices, numbered along axes in this order, as groups of `size`."""
    import numpy as np  # as every program with jax

    devices = np.arange(math.prod(sizes)).reshape(sizes).transpose(order)
    return list(devices.reshape(-1, size).tolist())


def _parse_numbers(text: str) -> list[int]:
    import re

    return [int(number) for number in re.findall(r"\d+", text)]


def find_program_name(computation: Any) -> str:
    """Return the name of a program that is being compiled.

    It is the name that JAX gave it; or the user's call, where JAX's functions for all processes
    compile a helper that users do not know: `process_allgather` for `jit(_identity_fn)`.
    """
    called = user_lines.find_library_call(source_lines.JAX_COLLECTIVES)
    return called or str(computation.operation.attributes["sym_name"]).strip('"')

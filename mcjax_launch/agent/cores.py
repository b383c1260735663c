"""The cores of a host, shared out among its ranks."""

from __future__ import annotations

from .system import system

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from collections.abc import Sequence


def share_cores(ranks: int) -> list[list[int]]:
    """The cores this process may use, split evenly, one list a rank.

    Neighbours stay together, and a physical core's threads go to one rank as long as there are
    enough physical cores. With more ranks than cores several ranks share one.
    """
    physical = system.cores()
    return split_cores(physical, ranks) if physical else [[] for _ in range(ranks)]


def split_cores(physical: Sequence[Sequence[int]], ranks: int) -> list[list[int]]:
    """Split `physical` (hardware threads of each physical core) over `ranks`."""
    units = [list(core) for core in physical]
    if len(units) < ranks:
        units = [[thread] for core in physical for thread in core]
    if len(units) < ranks:
        return [units[rank * len(units) // ranks] for rank in range(ranks)]
    shares = []
    for rank in range(ranks):
        mine = units[rank * len(units) // ranks : (rank + 1) * len(units) // ranks]
        shares.append(sorted(thread for core in mine for thread in core))
    return shares

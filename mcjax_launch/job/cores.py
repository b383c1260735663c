"""The cores that each rank of a host is bound to; pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from mcjax_launch.job.gpus import GpuShares
from mcjax_launch.kernel.wire.messages import HostFacts

if TYPE_CHECKING:
    from mcjax_launch.job.plan import Rank

_HIGHEST = 1 << 14  # more hardware threads than a kernel counts


def of_ranks(how: str, ranks: int, facts: HostFacts, gpus: GpuShares) -> list[tuple[int, ...]]:
    """The cores of each rank on a host; empty for a rank that may use all.

    Args:
        how: as in Job. "on" gives each rank cores of its own, as long as there are enough; "auto"
            binds only ranks with GPUs of their own, to all cores next to these.
        ranks: how many run there.
        facts: of the host.
        gpus: how the ranks share its own.

    """
    allowed = {thread for core in facts.cores for thread in core}
    near = [_near(rank, facts, gpus) & allowed for rank in range(ranks)]
    known = all(near)
    if how == "off" or not allowed:
        return [()] * ranks
    if how == "auto":
        matters = known and any(cores != allowed for cores in near)
        return [tuple(sorted(cores)) if matters else () for cores in near]
    return _own_shares(facts.cores, near if known and _are_apart(near) else [allowed] * ranks)


def described(ranks: Iterable[Rank], how: str) -> str:
    """What was decided, in words; "" where no rank is bound.

    Args:
        ranks: of the job.
        how: as in Job.

    """
    bound = next((rank for rank in ranks if rank.cores), None)
    if bound is None:
        return ""
    whose = "a share of its own" if how == "on" else "those next to its GPUs"
    return f"cores: each rank has {whose} (rank {bound.process_id}: {bound.bound_to})"


def _near(rank: int, facts: HostFacts, gpus: GpuShares) -> frozenset[int]:
    """The cores next to the GPUs of a rank; none where they are not known."""
    if not gpus.of_ranks or not facts.gpus.near:
        return frozenset()
    by_id = dict(zip(facts.gpus.ids, facts.gpus.near, strict=True))
    return frozenset(core for gpu in gpus.of_ranks[rank] for core in _listed(by_id.get(gpu, "")))


def _listed(text: str) -> Iterator[int]:
    """The numbers of a list such as `0-15,128-143`."""
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first.isdecimal() and (last or first).isdecimal():
            yield from range(int(first), min(int(last or first), _HIGHEST) + 1)


def _are_apart(near: Sequence[frozenset[int]]) -> bool:
    different = set(near)
    return sum(map(len, different)) == len(frozenset().union(*different))


def _own_shares(
    physical: Sequence[Sequence[int]], near: Sequence[Collection[int]]
) -> list[tuple[int, ...]]:
    """A share of the physical cores for each rank, out of those near it."""
    shares: list[tuple[int, ...]] = [()] * len(near)
    for cores in dict.fromkeys(map(frozenset, near)):
        among = [rank for rank, own in enumerate(near) if own == cores]
        there = [[thread for thread in core if thread in cores] for core in physical]
        for rank, share in zip(
            among, split([core for core in there if core], len(among)), strict=True
        ):
            shares[rank] = tuple(share)
    return shares


def split(physical: Sequence[Sequence[int]], ranks: int) -> list[list[int]]:
    """Split `physical` (hardware threads of each physical core) over `ranks`.

    Neighbours stay together, and a physical core's threads go to one rank as long as there are
    enough physical cores. With more ranks than cores several ranks share one.
    """
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

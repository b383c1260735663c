"""Ranks and other processes that use this host's GPUs, by readings of `machine.nvml`."""

from __future__ import annotations

import os

from ..machine import gpus
from ..wire.messages import GpuUse, RankOnGpu
from .leftovers import find_rank
from .system import system

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from .system.unix import HostProcess

# Characters of a command to report.
_LONGEST = 80
# The kernel's number for the namespace of the pids that the driver knows.
_FIRST_NAMESPACE = "pid:[4026531836]"


def attribute_gpus(
    reading: list[dict[str, Any]],
    found: Mapping[int, HostProcess],
    ranks: Mapping[int, int],
    environs: Mapping[int, Mapping[str, str]],
    *,
    sees_all: bool,
) -> tuple[GpuUse, ...]:
    """Return what each GPU does, and for which ranks.

    Args:
        reading: values of the GPUs, as `machine.nvml` prints them.
        found: all processes of this host, by pid.
        ranks: rank of each rank's own process, by pid.
        environs: environment of each rank, which says which GPUs are its own.
        sees_all: True if the driver's pids are those of this host. If False, as in a container,
            and none is a rank's, each GPU is taken to work for the ranks that own it.

    """
    users: list[list[tuple[int | None, int, int | None]]] = [
        [(find_rank(found.get(pid), found, ranks), pid, mib) for pid, mib in gpu["processes"]]
        for gpu in reading
    ]
    if not sees_all and all(rank is None for on_gpu in users for rank, _, _ in on_gpu):
        uuids = [gpu["uuid"] for gpu in reading]
        own = {rank: gpus.select_own_gpus(environs.get(rank, {}), uuids) for rank in ranks.values()}
        users = [[(rank, 0, None) for rank in own if n in own[rank]] for n in range(len(reading))]
    return tuple(map(_make_use, reading, users))


def _make_use(gpu: dict[str, Any], users: Iterable[tuple[int | None, int, int | None]]) -> GpuUse:
    """Return a GPU's values, with the memory of each rank; other processes are described."""
    mib_by_rank: dict[int, int | None] = {}
    others = []
    for rank, pid, mib in users:
        if rank is None:
            others.append(_describe_other(pid, mib))
        else:
            before = mib_by_rank.get(rank)
            mib_by_rank[rank] = before if mib is None else (before or 0) + mib
    on_gpu = tuple(RankOnGpu(rank, mib) for rank, mib in mib_by_rank.items())
    told = {name: value for name, value in gpu.items() if name not in ("uuid", "processes")}
    return GpuUse(**told, ranks=on_gpu, others=tuple(others))


def _describe_other(pid: int, mib: int | None) -> str:
    """Describe a process that belongs to no rank of this host: `pid 7 (python train.py) 9 MiB`."""
    words = [word for word in system.read_command(pid)[:2] if not word.startswith("-")]
    command = " ".join(map(os.path.basename, words))[:_LONGEST]
    holds = "" if mib is None else f" {mib} MiB"
    return f"pid {pid}{f' ({command})' if command else ''}{holds}"


def sees_all_pids() -> bool:
    """Return whether the driver's pids are those of this process's namespace."""
    try:
        return os.readlink("/proc/self/ns/pid") == _FIRST_NAMESPACE
    except OSError:
        return False

"""Readings of this host's GPUs, and the ranks and other processes that use each GPU."""

from __future__ import annotations

import os

from ..machine import gpus
from ..wire.messages import GpuUse, RankOnGpu
from .rank_processes import find_rank
from .system import system

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from .system.unix import HostProcess

# Characters of a command to report.
_LONGEST = 80


def merge_readings(readings: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return the last of several readings of all GPUs, with `busy` as the average of all."""
    merged = []
    for gpu in readings[-1]:
        same = [each for reading in readings for each in reading if each["number"] == gpu["number"]]
        known = [each["busy"] for each in same]
        average = None if None in known else sum(known) / len(known)
        merged.append({**gpu, "busy": average})
    return merged


def attribute_gpus(
    readings: list[dict[str, Any]],
    found: Mapping[int, HostProcess],
    ranks: Mapping[int, int],
    environs: Mapping[int, Mapping[str, str]],
    *,
    sees_all: bool,
) -> tuple[GpuUse, ...]:
    """Return what each GPU does, and for which ranks.

    Args:
        readings: values of the GPUs, as `machine.nvml` prints them.
        found: all processes of this host, by pid.
        ranks: rank of each rank's own process, by pid.
        environs: environment of each rank, which says which GPUs are its own.
        sees_all: True if the driver's pids are those of this host. If False, as in a container,
            and none is a rank's, each GPU is taken to work for the ranks that own it.

    """
    users = [
        [(find_rank(found.get(pid), found, ranks), pid, mib) for pid, mib in gpu["processes"]]
        for gpu in readings
    ]
    if not sees_all and not any(user[0] is not None for on_gpu in users for user in on_gpu):
        own = {
            rank: gpus.select_own_gpus(environ, [gpu["uuid"] for gpu in readings])
            for rank, environ in environs.items()
            if rank in ranks.values()
        }
        return tuple(
            _make_use(gpu, [(rank, 0, None) for rank in own if n in own[rank]], [])
            for n, gpu in enumerate(readings)
        )
    return tuple(
        _make_use(
            gpu,
            [user for user in on_gpu if user[0] is not None],
            [user for user in on_gpu if user[0] is None],
        )
        for gpu, on_gpu in zip(readings, users)
    )


def _make_use(gpu: dict[str, Any], users: list[Any], others: list[Any]) -> GpuUse:
    """Return a GPU's values, with the memory of each rank."""
    mib_by_rank: dict[int, int | None] = {}
    for rank, _, mib in users:
        before = mib_by_rank.get(rank)
        mib_by_rank[rank] = before if mib is None else (before or 0) + mib
    return GpuUse(
        gpu["number"],
        gpu["name"],
        gpu["used_mib"],
        gpu["total_mib"],
        gpu["busy"],
        tuple(RankOnGpu(rank, mib) for rank, mib in mib_by_rank.items()),
        tuple(_describe_other(pid, mib) for _, pid, mib in others),
    )


def _describe_other(pid: int, mib: int | None) -> str:
    """Describe a process that belongs to no rank of this host: `pid 7 (python train.py) 9 MiB`."""
    words = [word for word in system.read_command(pid)[:2] if not word.startswith("-")]
    command = " ".join(map(os.path.basename, words))[:_LONGEST]
    holds = "" if mib is None else f" {mib} MiB"
    return f"pid {pid}{f' ({command})' if command else ''}{holds}"


# The kernel's number for the namespace of the pids that the driver knows.
_FIRST_NAMESPACE = "pid:[4026531836]"


def sees_all_pids() -> bool:
    """Return whether the driver's pids are those of this process's namespace."""
    try:
        return os.readlink("/proc/self/ns/pid") == _FIRST_NAMESPACE
    except OSError:
        return False

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

# Values of which the highest of several readings counts, so that no short work is missed.
_PEAKS = ("memory_busy", "power_w")
# Characters of a command to report.
_LONGEST = 80


def merge_readings(readings: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return the last of several readings of all GPUs, with what the GPUs did in all of them.

    `busy` is the average; `memory_busy` and `power_w` are the highest.
    """
    merged = []
    for gpu in readings[-1]:
        same = [
            other for reading in readings for other in reading if other["number"] == gpu["number"]
        ]
        known = {name: [each[name] for each in same] for name in ("busy", *_PEAKS)}
        values = {name: None if None in each else max(each) for name, each in known.items()}
        if values["busy"]:
            values["busy"] = sum(known["busy"]) / len(same)
        merged.append({**gpu, **values})
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
        [(find_rank(found.get(pid), found, ranks), pid, *rest) for pid, *rest in gpu["processes"]]
        for gpu in readings
    ]
    if not sees_all and not any(user[0] is not None for on_gpu in users for user in on_gpu):
        own = {
            rank: gpus.select_own_gpus(environ, [gpu["uuid"] for gpu in readings])
            for rank, environ in environs.items()
            if rank in ranks.values()
        }
        return tuple(
            _make_use(gpu, [(rank, 0, None, None, None) for rank in own if n in own[rank]], [])
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
    """Return a GPU's values, and of each rank its own if others use the GPU and that is known."""
    by_rank: dict[int, RankOnGpu] = {}
    is_shared = bool(others) or len({rank for rank, *_ in users}) > 1
    tells = is_shared and any(busy for _, _, _, busy, _ in (*users, *others))
    for rank, _, mib, busy, memory_busy in users:
        before = by_rank.get(rank, RankOnGpu(rank))
        by_rank[rank] = RankOnGpu(
            rank,
            before.mib if mib is None else (before.mib or 0) + mib,
            max(before.busy or 0, busy or 0) if tells else gpu["busy"],
            max(before.memory_busy or 0, memory_busy or 0) if tells else gpu["memory_busy"],
        )
    return GpuUse(
        gpu["number"],
        gpu["name"],
        gpu["used_mib"],
        gpu["total_mib"],
        gpu["busy"],
        gpu["memory_busy"],
        gpu["power_w"],
        gpu["limit_w"],
        tuple(by_rank.values()),
        tuple(_describe_other(pid, mib) for _, pid, mib, *_ in others),
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

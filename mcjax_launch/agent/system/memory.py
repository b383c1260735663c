"""How much memory a process can have on Linux, for --check."""

from __future__ import annotations

import os

from .oom import own_cgroup


def total_and_free_kib() -> tuple[int, int]:
    """All memory, and what is free; of this process's cgroup where that allows less."""
    try:
        with open("/proc/meminfo") as file:
            known = dict(line.split(":", 1) for line in file)
        total, free = (int(known[name].split()[0]) for name in ("MemTotal", "MemAvailable"))
    except (OSError, KeyError, ValueError):
        return 0, 0
    cgroup, _ = own_cgroup()
    for most, used in (
        ("memory.max", "memory.current"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        try:
            limit = _number(cgroup, most) >> 10
            cached = _reclaimable(cgroup)
            left = limit - ((_number(cgroup, used) - cached) >> 10)
        except (OSError, ValueError):  # no limit, or no such cgroup
            continue
        total, free = min(total, limit), max(0, min(free, left))
    return total, free


def _number(cgroup: str, name: str) -> int:
    with open(os.path.join(cgroup, name)) as file:
        return int(file.read())


def _reclaimable(cgroup: str) -> int:
    """Bytes of files that the kernel keeps as long as nobody needs the memory."""
    with open(os.path.join(cgroup, "memory.stat")) as file:
        counts = dict(line.split() for line in file)
    return int(counts.get("total_inactive_file", counts.get("inactive_file", 0)))

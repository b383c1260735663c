"""What a host has to share out among its ranks: GPUs and cores."""

from __future__ import annotations

import os

from .system import system

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from collections.abc import Sequence


_RESTRICTING = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


def is_restricted(environ: dict[str, str]) -> bool:
    """Whether the environment says which GPUs are to be seen."""
    return any(name in environ for name in _RESTRICTING)


def count_gpus(environ: dict[str, str]) -> int:
    """GPUs that a program started here would see.

    What the environment restricts them to, else what the vendor's tool lists, else the device
    files. A GPU's own processes never start here: nothing is initialised.
    """
    for name in _RESTRICTING:
        if name in environ:
            return _count_visible(environ[name])
    import subprocess

    try:
        listed = subprocess.run(
            ["nvidia-smi", "-L"], capture_output=True, text=True, timeout=8, check=True
        )
        return sum(line.startswith("GPU ") for line in listed.stdout.splitlines())
    except (OSError, subprocess.SubprocessError):
        return sum(
            name.startswith("nvidia") and name[len("nvidia") :].isdigit()
            for name in os.listdir("/dev")
        )


def _count_visible(value: str) -> int:
    """CUDA's rule: the list ends at the first entry that is not a device."""
    count = 0
    for entry in value.split(","):
        entry = entry.strip()
        if not entry or entry == "-1" or entry == "NoDevFiles":
            break
        count += 1
    return count


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

"""Sharing a host's TPU chips out among its ranks, as JAX's own test runner does; pure.

libtpu wants to know how the chips of a process lie beside one another, and the processes of a host.
"""

from __future__ import annotations

from mcjax_launch.errors import LaunchError
from mcjax_launch.job.hosts import Host
from mcjax_launch.kernel.wire.messages import HostFacts
from mcjax_launch.ranks import counted

_Grid = tuple[int, int, int]

# So many chips of a host lie like this, unless the model has a grid of its own.
_GRIDS: dict[int, _Grid] = {1: (1, 1, 1), 2: (2, 1, 1), 4: (2, 2, 1), 8: (4, 2, 1)}
_OTHER_GRIDS: dict[tuple[str, int], _Grid] = {
    ("v5p", 2): (1, 2, 1),
    ("8t", 2): (1, 2, 1),
    ("8i", 4): (4, 1, 1),
    ("v6e", 8): (2, 4, 1),
    ("v4", 8): (2, 2, 2),
    ("7x", 8): (2, 2, 2),
}
# The share of a rank, by the chips of all and of each.
_SHARES: dict[tuple[int, int], _Grid] = {
    **{(chips, 1): (1, 1, 1) for chips in _GRIDS},
    (4, 2): (1, 2, 1),
    (8, 4): (2, 2, 1),
}
_OTHER_SHARES: dict[tuple[str, int, int], _Grid] = {("8i", 4, 2): (2, 1, 1)}


def bounds(model: str, chips: int, each: int) -> tuple[str, str] | None:
    """The processes and the chips of each, as grids; None where they cannot be shared out so.

    Args:
        model: of the chips.
        chips: of all ranks of the host.
        each: of each of them.

    """
    grid = _OTHER_GRIDS.get((model, chips)) or _GRIDS.get(chips)
    share = _OTHER_SHARES.get((model, chips, each)) or _SHARES.get((chips, each))
    if grid is None or (share is None and chips != each):
        return None
    mine = grid if share is None or chips == each else share
    processes = (whole // part for whole, part in zip(grid, mine, strict=True))
    return ",".join(map(str, processes)), ",".join(map(str, mine))


def settings(each: int, host: Host, local: int, ranks: int, facts: HostFacts) -> dict[str, str]:
    """The variables that give a rank its own chips.

    Raises:
        LaunchError: the host has too few, or they cannot be shared out so.

    """
    needed, tpu = each * ranks, facts.tpu
    if tpu is None or needed > tpu.chips:
        raise LaunchError(
            f"host {host.name}: needs {counted(needed, 'TPU chip')} for {counted(ranks, 'rank')}, "
            f"has {tpu.chips if tpu is not None else 'none'} on its PCI bus; lower -n or "
            "--tpu-chips-per-process"
        )
    found = bounds(tpu.model, needed, each)
    if found is None:
        raise LaunchError(
            f"--tpu-chips-per-process {each}: {needed} chips of {counted(ranks, 'rank')} "
            "form no grid that libtpu knows; it takes 1, 2, 4 or 8 in all, and 1, 4 or 8 of 8 each"
        )
    processes, chips = found
    mine = range(local * each, (local + 1) * each)
    return {
        "CLOUD_TPU_TASK_ID": str(local),
        "TPU_VISIBLE_CHIPS": ",".join(map(str, mine)),
        "TPU_PROCESS_BOUNDS": processes,
        "TPU_CHIPS_PER_PROCESS_BOUNDS": chips,
        "TPU_PROCESS_ADDRESSES": ",".join(f"localhost:{port}" for port in facts.tpu_ports),
        "TPU_PROCESS_PORT": str(facts.tpu_ports[local]),
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    }

"""The program of --check: adds a number of each device, and times that.

Each rank prints lines with JSON, for the launcher. It runs in the ranks' own Python, which may be
an old one and has no mcjax-launch: nothing of ours is imported.
"""

from __future__ import annotations

import json
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: What stands before the JSON in a line.
MARK = "mcjax-check: "
#: The second argument where the launcher has loaded no hook.
NO_HOOK = "no-hook"
_SMALL = 1 << 10
_SMALL_RUNS, _LARGE_RUNS = 20, 2
_ITEM = 4  # bytes of a float32


def main(large: int, hooked: bool) -> None:
    """Be a rank.

    Args:
        large: bytes of the larger sum, of each device.
        hooked: a bare initialize() gets its coordinates.

    """
    began = time.monotonic()
    import jax

    imported = time.monotonic()
    jax.distributed.initialize(**({} if hooked else coordinates()))
    joined = time.monotonic()
    devices = jax.devices()
    found = time.monotonic()
    tell(
        process=jax.process_index(),
        ranks=jax.process_count(),
        devices=[[one.platform, one.device_kind] for one in jax.local_devices()],
        slices=slices(devices),
        import_s=imported - began,
        initialize_s=joined - imported,
        devices_s=found - joined,
    )
    value = sum_of_numbers(devices)
    tell(value=value, devices_in_all=len(devices), first_s=time.monotonic() - found)
    some = timed_devices(devices)
    for size, runs in ((_SMALL, _SMALL_RUNS), (large, _LARGE_RUNS)):
        seconds, right = timed_sum(some, size, runs)
        tell(size=size, on=len(some), seconds=seconds, right=right)


def coordinates() -> dict[str, Any]:
    """What the launcher has set for this rank."""
    return {
        "coordinator_address": os.environ["JAX_COORDINATOR_ADDRESS"],
        "num_processes": int(os.environ["JAX_NUM_PROCESSES"]),
        "process_id": int(os.environ["JAX_PROCESS_ID"]),
    }


def slices(devices: list[Any]) -> list[int]:
    """The slice of each process's devices, where this jax knows that."""
    found = {one.process_index: getattr(one, "slice_index", 0) for one in devices}
    return [found[process] for process in sorted(found)]


def tell(**what: object) -> None:
    """Tell the launcher."""
    print(MARK + json.dumps(what), flush=True)


def timed_devices(devices: list[Any]) -> list[Any]:
    """Those that take part in what is timed.

    The CPU devices of a process have one memory: between processes one of each counts.
    """
    if devices[0].platform != "cpu" or len({one.process_index for one in devices}) == 1:
        return devices
    return list({one.process_index: one for one in reversed(devices)}.values())[::-1]


def sum_of_numbers(devices: list[Any]) -> int:
    """1 + 2 + ..., a number from each device."""
    import jax
    import numpy as np

    spread, whole = shardings(devices)
    numbers: Any = np.arange(1, len(devices) + 1, dtype=np.int32)
    array = jax.make_array_from_callback(numbers.shape, spread, lambda index: numbers[index])
    return int(jax.jit(lambda a: a.sum(), out_shardings=whole)(array))


def timed_sum(devices: list[Any], size: int, runs: int) -> tuple[float, bool]:
    """The least time of a sum of `size` bytes from each device, and whether it was right."""
    import jax
    import jax.numpy as jnp

    spread, whole = shardings(devices)
    shape = len(devices), size // _ITEM
    ones = jax.jit(lambda: jnp.ones(shape, jnp.float32), out_shardings=spread)()
    ones.block_until_ready()
    added = jax.jit(lambda a: a.sum(0), out_shardings=whole).lower(ones).compile()
    times = []
    for _ in range(runs):
        began = time.perf_counter()
        result = added(ones)
        result.block_until_ready()
        times.append(time.perf_counter() - began)
    right = jax.jit(lambda a: (a == len(devices)).all(), out_shardings=whole)(result)
    return min(times), bool(right)


def shardings(devices: list[Any]) -> tuple[Any, Any]:
    """Split over these devices, and the same on all of them."""
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    mesh = Mesh(np.array(devices), ("devices",))
    return NamedSharding(mesh, PartitionSpec("devices")), NamedSharding(mesh, PartitionSpec())


if __name__ == "__main__":
    main(int(sys.argv[1]), hooked=sys.argv[2:] != [NO_HOOK])

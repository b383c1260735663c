"""Probe of --check: prints what the ranks' Python and its JAX find, as JSON in marked lines.

On each host an agent runs it with the word `versions` and, if the sum cannot run, `devices`. As a
rank of a job it gets no word: it adds up numbers of all devices and measures the time. It runs in
the ranks' own Python, which may be old and has no mcjax-launch, so it imports nothing of ours
except the hook, if that is in place.
"""

from __future__ import annotations

import json
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

#: Precedes the JSON in a line.
MARK = "mcjax-check: "
# Set if there is a hook, which fills in initialize() without arguments.
_HOOK = "MCJAX_HOOK_SOCKET"
# The hook's package (`kernel/hook/site/`).
_PACKAGE = "_mcjax_launch"
# Packages besides jax itself that let it use accelerators, and connect these.
_ACCELERATORS = ("cuda12", "cuda13", "cuda14", "rocm60", "rocm7", "rocm10")
PACKAGES = (
    *("jax", "jaxlib", "libtpu", "jax-metal"),
    *(f"jax-{name}-{part}" for name in _ACCELERATORS for part in ("plugin", "pjrt")),
    *("nvidia-nccl-cu12", "nvidia-nccl-cu13", "nvidia-nccl-cu14"),
)
# Bytes of each device, and how often they are added up; fewer for CPUs, which share their memory.
_SMALL = 1 << 10, 20
_LARGE, _LARGE_ON_CPU = (64 << 20, 2), (16 << 20, 2)


def main() -> None:
    """Run the part of the probe that the argument names."""
    {"versions": report_versions, "devices": report_devices, "": report_sum}[
        "".join(sys.argv[1:])
    ]()


def report(**what: object) -> None:
    """Print values as a line of JSON for the launcher."""
    print(f"\n{MARK}{json.dumps(what)}", flush=True)


# --- on each host ---


def report_versions() -> None:
    """Report the versions of this Python and of the packages, without importing them."""
    import contextlib
    import importlib.metadata
    import platform

    found = {}
    for name in PACKAGES:
        with contextlib.suppress(Exception):  # a package may be broken in any way
            found[name] = importlib.metadata.version(name)
    for name in ("jax", "jaxlib"):
        found[name] = find_version(name, found.get(name, ""))
    packages = {name: version for name, version in found.items() if version}
    report(version=platform.python_version(), packages=packages)


def find_version(name: str, known: str) -> str:
    """Return a package's version: that in its sources if the metadata has another or none.

    Args:
        name: name of the package.
        known: version in the metadata; "" if there is none.

    Returns:
        "" if the package is not found; "of unknown version" if neither place has a version.

    """
    import importlib.util
    import re

    module = importlib.util.find_spec(name)
    if module is None:
        return ""
    try:
        with open(os.path.join(os.path.dirname(module.origin or ""), "version.py")) as file:
            stated = re.search(r"^_version = [\"']([^\"']+)", file.read(), re.MULTILINE)
    except Exception:
        stated = None
    if stated and not known.startswith(stated[1]):
        return stated[1]
    return known or "of unknown version"


def report_devices() -> None:
    """Report the devices that JAX finds on this host alone."""
    import jax

    report(devices=count_kinds(jax.local_devices()))


def count_kinds(found: Sequence[Any]) -> list[list[Any]]:
    """Count devices by their platform and kind."""
    from collections import Counter

    counts = Counter((device.platform, device.device_kind) for device in found)
    return [[*kind, count] for kind, count in counts.items()]


# --- as a rank of a job ---


def report_sum() -> None:
    """Join the job, add up numbers of all devices, and report times and results."""
    began = time.monotonic()
    import jax

    imported = time.monotonic()
    jax.distributed.initialize(**({} if _HOOK in os.environ else read_arguments()))
    joined = time.monotonic()
    every, mine = jax.devices(), jax.local_devices()
    found = time.monotonic()
    report(
        coordinator=os.environ["JAX_COORDINATOR_ADDRESS"],
        devices=count_kinds(mine),
        slice=getattr(mine[0], "slice_index", 0),  # 0 if this jax does not know it
        import_s=imported - began,
        initialize_s=joined - imported,
        devices_s=found - joined,
        internals=count_internals(),
    )
    first = measure_sum(every, 4, 1)
    first_s = time.monotonic() - found
    on_cpu = every[0].platform == "cpu"
    # The CPU devices of a process share its memory, so one device of each process is enough.
    some = list({device.process_index: device for device in every}.values()) if on_cpu else every
    large = measure_sum(some, *(_LARGE_ON_CPU if on_cpu else _LARGE))
    report(first_s=first_s, sums=[first, measure_sum(some, *_SMALL), large])


def count_internals() -> dict[str, Any]:
    """Return the number of JAX's internals that the hook uses, and those that this jax lacks."""
    if _PACKAGE not in sys.modules:
        return {}
    from importlib import import_module

    known = import_module(f"{_PACKAGE}.kernel.hook.jax_internals")
    missing = {str(internal): internal.lost for internal in known.find_missing()}
    return {"count": len(known.INTERNALS), "missing": missing}


def read_arguments() -> dict[str, Any]:
    """Return the arguments of initialize() that the launcher has set for this rank."""
    return {
        "coordinator_address": os.environ["JAX_COORDINATOR_ADDRESS"],
        "num_processes": int(os.environ["JAX_NUM_PROCESSES"]),
        "process_id": int(os.environ["JAX_PROCESS_ID"]),
    }


def measure_sum(devices: list[Any], size: int, runs: int) -> dict[str, Any]:
    """Add up arrays of `size` bytes, ones on the first device, twos on the next, ...; time it."""
    import jax
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    mesh = Mesh(np.array(devices), ("devices",))
    spread, whole = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in (("devices",), ()))
    column: Any = np.arange(1, len(devices) + 1, dtype=np.int32)[:, None]
    rows = np.broadcast_to(column, (len(devices), size // column.itemsize))
    numbers = jax.make_array_from_callback(rows.shape, spread, lambda index: rows[index])
    add = jax.jit(lambda a: a.sum(0), out_shardings=whole).lower(numbers).compile()
    times = []
    for _ in range(runs):
        began = time.perf_counter()
        result = add(numbers)
        result.block_until_ready()
        times.append(time.perf_counter() - began)
    values = np.asarray(result.addressable_data(0))
    ends = [int(values.min()), int(values.max())]
    return {"devices": len(devices), "size": size, "values": ends, "seconds": min(times)}


if __name__ == "__main__":
    main()

"""The probe of --check: what the ranks' Python and its JAX find, in lines with JSON.

On each host an agent runs it, for `versions` and, if there is no sum, for `devices`. As a rank of a
job it gets no such word: it adds numbers of all devices, and times that. It runs in the ranks' own
Python, which may be an old one and has no mcjax-launch: nothing of ours is imported, but of the
hook where it is.
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

#: What stands before the JSON in a line.
MARK = "mcjax-check: "
# There is a hook, by which a bare initialize() gets what it needs.
_HOOK = "MCJAX_HOOK_SOCKET"
# And this is it (`kernel/hook/site/`).
_PACKAGE = "_mcjax_launch"
# Beside jax itself: what makes it use an accelerator, and joins those.
_ACCELERATORS = ("cuda12", "cuda13", "cuda14", "rocm60", "rocm7", "rocm10")
PACKAGES = (
    *("jax", "jaxlib", "libtpu", "jax-metal"),
    *(f"jax-{name}-{part}" for name in _ACCELERATORS for part in ("plugin", "pjrt")),
    *("nvidia-nccl-cu12", "nvidia-nccl-cu13", "nvidia-nccl-cu14"),
)
# Bytes of each device, and how often they are added up. CPUs share their memory with much else.
_SMALL = 1 << 10, 20
_LARGE, _LARGE_ON_CPU = (64 << 20, 2), (16 << 20, 2)


def main() -> None:
    """Find what a word asks for."""
    {"versions": versions, "devices": devices, "": add_up}["".join(sys.argv[1:])]()


def tell(**what: object) -> None:
    """Print a line for the launcher."""
    print(f"\n{MARK}{json.dumps(what)}", flush=True)


# --- on each host ---


def versions() -> None:
    """Tell the versions of this Python and of the packages, of which none is imported."""
    import contextlib
    import importlib.metadata
    import platform

    found = {}
    for name in PACKAGES:
        with contextlib.suppress(Exception):  # whatever is wrong with one
            found[name] = importlib.metadata.version(name)
    for name in ("jax", "jaxlib"):
        found[name] = source_version(name, found.get(name, ""))
    packages = {name: version for name, version in found.items() if version}
    tell(version=platform.python_version(), packages=packages)


def source_version(name: str, known: str) -> str:
    """Return the version of the sources, which may not be those that the metadata speaks of."""
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


def devices() -> None:
    """Tell which devices JAX has here, on its own."""
    import jax

    tell(devices=kinds(jax.local_devices()))


def kinds(found: Sequence[Any]) -> list[list[Any]]:
    """Count devices by their platform and kind."""
    from collections import Counter

    counts = Counter((one.platform, one.device_kind) for one in found)
    return [[*kind, count] for kind, count in counts.items()]


# --- as a rank of a job ---


def add_up() -> None:
    """Join the job, and add up numbers of all devices."""
    began = time.monotonic()
    import jax

    imported = time.monotonic()
    jax.distributed.initialize(**({} if _HOOK in os.environ else coordinates()))
    joined = time.monotonic()
    every, mine = jax.devices(), jax.local_devices()
    found = time.monotonic()
    tell(
        coordinator=os.environ["JAX_COORDINATOR_ADDRESS"],
        devices=kinds(mine),
        slice=getattr(mine[0], "slice_index", 0),  # as far as this jax knows that
        import_s=imported - began,
        initialize_s=joined - imported,
        devices_s=found - joined,
        internals=internals(),
    )
    first = summed(every, 4, 1)
    first_s = time.monotonic() - found
    on_cpu = every[0].platform == "cpu"
    # The CPU devices of a process have one memory: between processes one of each counts.
    some = list({one.process_index: one for one in every}.values()) if on_cpu else every
    large = summed(some, *(_LARGE_ON_CPU if on_cpu else _LARGE))
    tell(first_s=first_s, sums=[first, summed(some, *_SMALL), large])


def internals() -> dict[str, Any]:
    """Count JAX's internals that the hook uses, and name those that this jax lacks."""
    if _PACKAGE not in sys.modules:
        return {}
    from importlib import import_module

    known = import_module(f"{_PACKAGE}.kernel.hook.jax_internals")
    missing = {str(internal): internal.lost for internal in known.missing()}
    return {"count": len(known.INTERNALS), "missing": missing}


def coordinates() -> dict[str, Any]:
    """What the launcher has set for this rank."""
    return {
        "coordinator_address": os.environ["JAX_COORDINATOR_ADDRESS"],
        "num_processes": int(os.environ["JAX_NUM_PROCESSES"]),
        "process_id": int(os.environ["JAX_PROCESS_ID"]),
    }


def summed(devices: list[Any], size: int, runs: int) -> dict[str, Any]:
    """Add arrays of this many bytes: of ones from the first device, of twos from the next, ..."""
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

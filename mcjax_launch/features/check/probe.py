"""Probe of --check: prints what the ranks' Python and its JAX find, as JSON in marked lines.

It joins the job, adds up numbers of all devices, and measures the time. It runs in the ranks' own
Python, which may be old and has no mcjax-launch, so it imports nothing of ours except the hook, if
that is in place.
"""

from __future__ import annotations

import json
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: Precedes the JSON in a line.
MARK = "mcjax-check: "
#: Variable with the name of the rank's host.
HOST = "MCJAX_CHECK_HOST"
#: Variable with what to look for, as JSON: `folders`, the working directory of each host; `paths`,
#: those in it at which PROGRAM may be; and `is_module`.
WANTED = "MCJAX_CHECK_WANTED"
# Set if there is a hook, which fills in initialize() without arguments.
_HOOK = "MCJAX_HOOK_SOCKET"
# Path of the socket at which rank 0 listens, unless its jax needs an address.
_SOCKET = "MCJAX_HOOK_COORDINATOR"
# The hook's package (`hook/site/`).
_PACKAGE = "_mcjax_launch"
# Bytes of each device that are added up: many packets between hosts, little memory.
_SIZE = 4 << 20


def report(**what: object) -> None:
    """Print values as a line of JSON for the launcher."""
    print(f"\n{MARK}{json.dumps(what)}", flush=True)


# --- the host ---


def report_host() -> None:
    """Report what the host and this Python have, without importing jax."""
    import platform

    report(
        python=platform.python_version(),
        path=sys.executable,
        **{name: find_version(name) for name in ("jax", "jaxlib")},
        **find_program(),
    )


def find_version(name: str) -> str:
    """Return the version of an installed package; "" if it is missing."""
    import importlib.metadata
    import importlib.util

    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "of unknown version" if importlib.util.find_spec(name) else ""


def find_program() -> dict[str, object]:
    """Return whether this host has the job's directory, and the SHA-256 of PROGRAM's file there."""
    import hashlib

    wanted = json.loads(os.environ[WANTED])
    home = os.path.expanduser("~")
    # A relative path begins where a login does.
    folder = os.path.expanduser(wanted["folders"][os.environ[HOST]])
    folder = os.path.join(os.environ.get("PWD") or os.getcwd(), folder)
    has_folder, checksum = os.path.isdir(folder), ""
    more = sys.path[1:] if wanted["is_module"] else []  # without the folder of this file
    starts = [folder if has_folder else home, *more]
    places = (os.path.join(start, path) for start in starts for path in wanted["paths"])
    if place := next(filter(os.path.isfile, places), ""):
        with open(place, "rb") as file:
            checksum = hashlib.sha256(file.read()).hexdigest()
    return {"has_folder": has_folder, "checksum": checksum}


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
    is_private = os.path.exists(os.environ.get(_SOCKET, ""))
    report(
        coordinator="a private socket" if is_private else os.environ["JAX_COORDINATOR_ADDRESS"],
        devices=[device.device_kind or device.platform for device in mine],
        import_s=imported - began,
        initialize_s=joined - imported,
        devices_s=found - joined,
        missing=find_missing_internals(),
    )
    values = compute_sum(every)
    report(count=len(every), values=values, sum_s=time.monotonic() - found)


def find_missing_internals() -> dict[str, str]:
    """Return JAX's internals that the hook uses and this jax lacks, and what is lost with each."""
    if _PACKAGE not in sys.modules:
        return {}
    from importlib import import_module

    known = import_module(f"{_PACKAGE}.hook.jax_internals")
    return {str(internal): internal.lost for internal in known.find_missing()}


def read_arguments() -> dict[str, Any]:
    """Return the arguments of initialize() that the launcher has set for this rank."""
    return {
        "coordinator_address": os.environ["JAX_COORDINATOR_ADDRESS"],
        "num_processes": int(os.environ["JAX_NUM_PROCESSES"]),
        "process_id": int(os.environ["JAX_PROCESS_ID"]),
    }


def compute_sum(devices: list[Any]) -> list[int]:
    """Add up arrays, of ones on the first device, twos on the next, ...: return the ends."""
    import jax
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    mesh = Mesh(np.array(devices), ("devices",))
    spread, whole = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in (("devices",), ()))
    column: Any = np.arange(1, len(devices) + 1, dtype=np.int32)[:, None]
    rows = np.broadcast_to(column, (len(devices), _SIZE // column.itemsize))
    numbers = jax.make_array_from_callback(rows.shape, spread, lambda index: rows[index])
    result = jax.jit(lambda a: a.sum(0), out_shardings=whole)(numbers)
    values = np.asarray(result.addressable_data(0))
    return [int(values.min()), int(values.max())]


if __name__ == "__main__":
    report_host()
    report_sum()

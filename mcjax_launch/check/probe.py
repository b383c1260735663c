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
    from collections.abc import Sequence
    from typing import Any

#: Precedes the JSON in a line.
MARK = "mcjax-check: "
#: Variable with what to look for, as JSON: the hosts' working directories, the paths in them at
#: which PROGRAM may be, and whether it is a module.
WANTED = "MCJAX_CHECK_WANTED"
# Set if there is a hook, which fills in initialize() without arguments.
_HOOK = "MCJAX_HOOK_SOCKET"
# Path of the socket at which rank 0 listens, unless its jax needs an address.
_SOCKET = "MCJAX_HOOK_COORDINATOR"
# The hook's package (`hook/site/`).
_PACKAGE = "_mcjax_launch"
# Packages besides jax itself that let it use accelerators, and connect these.
_ACCELERATORS = ("cuda12", "cuda13", "cuda14", "rocm60", "rocm7", "rocm10")
PACKAGES = (
    *("jax", "jaxlib", "libtpu", "jax-metal"),
    *(f"jax-{name}-{part}" for name in _ACCELERATORS for part in ("plugin", "pjrt")),
)
_NVIDIA_SMI = (*("nvidia-smi", "--query-gpu=index,name", "--format=csv,noheader,nounits"),)
_NVIDIA_SMI_S = 8.0
# Bytes of each device that are added up; fewer for CPUs, which share their memory.
_MUCH, _MUCH_ON_CPU = 64 << 20, 16 << 20


def report(**what: object) -> None:
    """Print values as a line of JSON for the launcher."""
    print(f"\n{MARK}{json.dumps(what)}", flush=True)


# --- the host ---


def report_host() -> None:
    """Report what the host and this Python have, without importing jax."""
    import contextlib
    import platform

    report(now=time.time())  # compared with the time at which it arrives, so alone
    told: dict[str, Any] = {
        "python": platform.python_version(),
        "interpreter": sys.executable,
        "platforms": os.environ.get("JAX_PLATFORMS", ""),
    }
    for name, find in FACTS.items():
        with contextlib.suppress(Exception):  # this system does not tell
            told[name] = find()
    report(**told)


def find_packages() -> dict[str, str]:
    """Return the versions of the packages that are installed."""
    import contextlib
    import importlib.metadata

    found = dict.fromkeys(PACKAGES, "")
    for name in PACKAGES:
        with contextlib.suppress(Exception):  # a package may be broken in any way
            found[name] = importlib.metadata.version(name)
    for name in ("jax", "jaxlib"):
        found[name] = find_version(name, found[name])
    return {name: version for name, version in found.items() if version}


def read_memory_kib() -> tuple[int, int]:
    """Return the machine's free and whole memory, in KiB."""
    page = os.sysconf("SC_PAGE_SIZE") >> 10
    return os.sysconf("SC_AVPHYS_PAGES") * page, os.sysconf("SC_PHYS_PAGES") * page


def list_missing_folders() -> list[str]:
    """Return those of the job's working directories that this host lacks."""
    folders, _, _ = read_wanted()
    return [folder for folder in folders if not os.path.isdir(resolve_folder(folder))]


def read_wanted() -> tuple[list[str], list[str], bool]:
    """Return what the variable WANTED names."""
    folders, paths, is_module = json.loads(os.environ.get(WANTED, "[[], [], false]"))
    return folders, paths, is_module


def resolve_folder(folder: str) -> str:
    """Return the path of a working directory; a relative path begins where a login does."""
    return os.path.join(os.environ.get("PWD") or os.getcwd(), os.path.expanduser(folder))


def compute_checksums() -> dict[str, str]:
    """Return the SHA-256 of PROGRAM's file as a job has it that begins in each of the directories.

    A directory without that file is missing.
    """
    import hashlib

    folders, paths, is_module = read_wanted()
    more = sys.path[1:] if is_module else []  # without the folder of this file
    found: dict[str, str] = {}
    for folder in folders:
        here = resolve_folder(folder)
        starts = [here if os.path.isdir(here) else os.path.expanduser("~"), *more]
        places = (os.path.join(start, path) for start in starts for path in paths)
        for place in filter(os.path.isfile, places):
            with open(place, "rb") as file:
                found.setdefault(folder, hashlib.sha256(file.read()).hexdigest())
    return found


def list_gpus() -> list[list[Any]]:
    """Return number and model of each GPU of this rank."""
    if "JAX_NUM_CPU_DEVICES" in os.environ:  # the job uses none
        return []
    import contextlib
    import glob

    with contextlib.suppress(OSError):  # there is no nvidia-smi
        if found := _list_nvidia_gpus():
            return found
    devices = sorted(glob.glob("/dev/nvidia[0-9]*"))
    return [[number, "NVIDIA GPU"] for number in range(len(devices))] or _list_amd_gpus()


def _list_nvidia_gpus() -> list[list[Any]]:
    import subprocess

    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    words = [*_NVIDIA_SMI, *([] if chosen is None else [f"--id={chosen}"])]
    asked = subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        listed = asked.communicate(timeout=_NVIDIA_SMI_S)[0].decode("utf-8", "replace")
    except subprocess.TimeoutExpired:  # it cannot be killed while it waits for the driver
        asked.kill()
        return []
    lines = (line.split(", ") for line in listed.splitlines())
    return [[int(number), name] for number, name in lines]


def _read_text(path: str) -> str:
    with open(path) as file:
        return file.read()


def _list_amd_gpus() -> list[list[Any]]:
    import glob

    found: list[list[Any]] = []
    for folder in sorted(glob.glob("/sys/class/drm/card*/device/")):
        if os.path.exists(f"{folder}mem_info_vram_total"):  # else a GPU of another vendor
            name = ""
            if os.path.exists(f"{folder}product_name"):
                name = _read_text(f"{folder}product_name").strip()
            found.append([len(found), name or "AMD GPU"])
    return found


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


def count_kinds(found: Sequence[Any]) -> list[list[Any]]:
    """Count devices by their platform and kind."""
    from collections import Counter

    counts = Counter((device.platform, device.device_kind) for device in found)
    return [[*kind, count] for kind, count in counts.items()]


#: What to find out about a host, by the name in the report.
FACTS = {
    "packages": find_packages,
    "memory_kib": read_memory_kib,
    "missing": list_missing_folders,
    "sources": compute_checksums,
    "gpus": list_gpus,
}


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
        coordinator="a private socket"
        if os.path.exists(os.environ.get(_SOCKET, ""))
        else os.environ["JAX_COORDINATOR_ADDRESS"],
        devices=count_kinds(mine),
        import_s=imported - began,
        initialize_s=joined - imported,
        devices_s=found - joined,
        missing_internals=find_missing_internals(),
    )
    first = measure_sum(every, 4)
    first_s = time.monotonic() - found
    # The CPU devices of a process share its memory, so one device of each process is enough.
    on_cpu = every[0].platform == "cpu"
    some = list({device.process_index: device for device in every}.values()) if on_cpu else every
    report(first_s=first_s, sums=[first, measure_sum(some, _MUCH_ON_CPU if on_cpu else _MUCH)])


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


def measure_sum(devices: list[Any], size: int) -> dict[str, Any]:
    """Add up arrays of `size` bytes, ones on the first device, twos on the next, ..."""
    import jax
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    mesh = Mesh(np.array(devices), ("devices",))
    spread, whole = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in (("devices",), ()))
    column: Any = np.arange(1, len(devices) + 1, dtype=np.int32)[:, None]
    rows = np.broadcast_to(column, (len(devices), size // column.itemsize))
    numbers = jax.make_array_from_callback(rows.shape, spread, lambda index: rows[index])
    result = jax.jit(lambda a: a.sum(0), out_shardings=whole)(numbers)
    values = np.asarray(result.addressable_data(0))
    ends = [int(values.min()), int(values.max())]
    return {"devices": len(devices), "size": size, "values": ends}


if __name__ == "__main__":
    report_host()
    report_sum()

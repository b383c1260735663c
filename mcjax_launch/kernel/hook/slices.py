"""Slices: the devices that JAX takes to be joined by a fast network, each slice with its index.

JAX gives every machine a slice of its own, on CPU too, where XLA goes by the machine's boot id; and
`jax.make_mesh` refuses devices of several slices. On CPU that says nothing about the network, so
all CPU devices of a job are one slice unless the user has asked for others (`--slices`). XLA has no
setting for that on CPU: the attribute of JAX's devices is replaced. GPUs have a setting, the
partition index of initialize(). TPUs know their slices themselves.
"""

from __future__ import annotations

import os
import sys
from bisect import bisect_right

from ..wire.hook_environ import SLICES
from . import backends

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

# The arguments of initialize(), and the variables that it reads: today's names and jax 0.6's.
_ARGUMENTS = ("partition_index", "slice_index")
_VARIABLES = ("JAX_PARTITION_INDEX", "JAX_SLICE_INDEX")
# In the coordinator's key-value store: the partition index of each process, by the number that
# the CPU backend gives it.
_KEY = "mcjax_launch/partition_index"
_MOST_WAITING_MS = 10_000


def default_partition(
    given: Mapping[str, Any], known: Mapping[str, Any], environ: Mapping[str, str]
) -> dict[str, int]:
    """The argument of initialize() for the slices that the user has asked for, if any.

    Args:
        given: the program's own arguments, with the process id.
        known: the arguments that this jax's initialize() takes.
        environ: of the hook.

    """
    name = next((name for name in _ARGUMENTS if name in known), None)
    if name is None or not environ.get(SLICES) or partition_of(given) is not None:
        return {}
    starts = [int(start) for start in environ[SLICES].split(",")]
    return {name: bisect_right(starts, given["process_id"]) - 1}


def partition_of(given: Mapping[str, Any]) -> int | None:
    """The partition index of this process, as JAX will read it; None if it has none."""
    values = [given.get(name) for name in _ARGUMENTS]
    values += [os.environ.get(name) for name in _VARIABLES]
    for value in values:
        if value is not None:
            try:
                return int(value)
            except (TypeError, ValueError):  # JAX says that
                return None
    return None


def replace_slice_index(given: Mapping[str, Any]) -> None:
    """Give the CPU devices of all processes the slices of this job; call it after initialize().

    Args:
        given: the arguments of initialize().

    """
    distributed: Any = sys.modules.get("jax._src.distributed")
    library = getattr(distributed, "_jax", None) or getattr(distributed, "xla_extension", None)
    client = getattr(getattr(distributed, "global_state", None), "client", None)
    device_class = getattr(library, "Device", None)
    if device_class is None or client is None:
        return
    slices = _Slices(client, partition_of(given))
    backends.when_one_starts["slices"] = slices.started
    for name in _ARGUMENTS:  # devices have attributes of the same names
        setattr(device_class, name, _attribute(device_class, name, slices))


class _Slices:
    """The slice of each process's CPU devices.

    Args:
        client: of the coordinator's key-value store.
        own: the partition index of this process; None where all CPU devices are one slice.

    """

    def __init__(self, client: Any, own: int | None) -> None:
        self._client = client
        self._own = own
        self._known: dict[int, int] = {}

    def started(self, backend: Any) -> None:
        """Tell the others the slice of this process, when the CPU backend has given it a number."""
        if backend.platform == "cpu" and self._own is not None:
            process = backend.process_index()
            self._known[process] = self._own
            self._client.key_value_set(f"{_KEY}/{process}", str(self._own))

    def of(self, process: int) -> int:
        """The index of the slice of a process."""
        if self._own is None:
            return 0
        if process not in self._known:
            try:
                key = f"{_KEY}/{process}"
                value = self._client.blocking_key_value_get(key, _MOST_WAITING_MS)
            except Exception:  # it has none: the launcher has said so when it joined
                value = "0"
            self._known[process] = int(value)
        return self._known[process]


def _attribute(device_class: Any, name: str, slices: _Slices) -> property:
    """An attribute of devices, where JAX's own stays for all but CPU devices."""
    real = device_class.__getattr__

    def index(device: Any) -> int:
        if device.platform != "cpu":
            raise AttributeError(name)  # Python asks `real` then
        real(device, name)  # which raises where this jax has no such attribute
        return slices.of(device.process_index)

    return property(index)


def slices_of_processes() -> tuple[int, ...]:
    """The slice of each process's first device, as JAX sees them; empty if it sees none.

    For a program that has failed since there are several: its devices are known already.
    """
    jax: Any = sys.modules.get("jax")
    found: dict[int, int] = {}
    try:
        for device in jax.devices():
            found.setdefault(device.process_index, device.slice_index)
        return tuple(found[process] for process in range(len(found)))
    except Exception:  # whatever the plugin of a device raises: the failure itself comes first
        return ()

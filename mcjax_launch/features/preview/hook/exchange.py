"""Exchange with the other ranks, none of which is there: joining, keys, barriers, values.

JAX gets a coordination service with one member, and takes it for that of the whole job.

Each process writes a description of its devices into the service's keys; process 0 joins them to
the description of all devices. Here the launcher's numbers stand for the other processes.
"""

from __future__ import annotations

import os
import re
import sys

from ....hook import devices, jax_internals
from ....wire.hook_environ import SOCKET

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any


def join(real: Callable[..., Any], filled: Mapping[str, Any], environ: Mapping[str, str]) -> Any:
    """Call JAX's initialize() for a job of one process, and then change the numbers to the job's.

    Args:
        real: JAX's own function.
        filled: arguments of the call in the job.
        environ: environment variables with which this process was started.

    Raises:
        ValueError: the program's numbers are impossible.

    """
    rank, count = filled["process_id"], filled["num_processes"]
    if not 0 <= rank < count:
        return real(**filled)  # which raises JAX's own error
    path = os.path.join(os.path.dirname(environ[SOCKET]), f"alone.{os.getpid()}")
    place = {"coordinator_address": f"unix:{path}", "coordinator_bind_address": f"unix:{path}"}
    result = real(**{**filled, **place, "process_id": 0, "num_processes": 1})
    state: Any = sys.modules["jax._src.distributed"].global_state
    state.process_id, state.num_processes = rank, count
    state.coordinator_address = filled["coordinator_address"]
    each = sys.modules["jax"].config.jax_num_cpu_devices
    keys = make_topology_keys(rank, count, each, _find_most_devices())
    for key, value in keys.items():
        state.client.key_value_set_bytes(key, value)
    _replace_exchange(jax_internals.get_extension().DistributedRuntimeClient)
    for key, text in devices.make_partition_keys(environ, count).items():
        state.client.key_value_set(key, text)
    return result


def _replace_exchange(client: Any) -> None:
    """Let barriers return at once, and let keys of other ranks have the value of this rank's own.

    Args:
        client: jaxlib's class of clients of the service.

    """
    values: dict[str, Any] = {}  # by the key, and by the key without its numbers

    def get(_: Any, key: str, *__: Any, **___: Any) -> Any:
        for known in (key, re.sub(r"\d+", "#", key)):
            if known in values:
                return values[known]
        raise RuntimeError(f"--preview: the key {key!r} is set by another rank, which does not run")

    def make_set(real: Callable[..., Any]) -> Callable[..., Any]:
        def key_value_set(self: Any, key: str, value: Any, *args: Any, **kwargs: Any) -> Any:
            values[key] = values[re.sub(r"\d+", "#", key)] = value
            return real(self, key, value, *args, **kwargs)

        return key_value_set

    for end in ("", "_bytes"):
        setattr(client, f"blocking_key_value_get{end}", get)
        name = f"key_value_set{end}"
        setattr(client, name, make_set(getattr(client, name)))
    client.wait_at_barrier = lambda *_, **__: None
    client.get_live_nodes = lambda _, processes: dict.fromkeys(processes, 0)


def patch_helpers(module: Any, jax: Any) -> None:
    """Let a rank exchange values with itself alone.

    Args:
        module: `jax.experimental.multihost_utils`, whose other functions use these two.
        jax: the package.

    """
    import numpy as np

    def broadcast_one_to_all(in_tree: Any, *_: Any, **__: Any) -> Any:
        return jax.tree.map(np.asarray, in_tree)

    def process_allgather(in_tree: Any, tiled: bool = False) -> Any:
        def gather(value: Any) -> Any:
            if not isinstance(value, jax.Array) or value.is_fully_addressable:
                own = [np.asarray(value)] * jax.process_count()
                return np.concatenate(own) if tiled and own[0].ndim else np.stack(own)
            if not tiled:
                raise ValueError(
                    "Gathering global non-fully-addressable arrays only supports tiled=True"
                )
            if value.is_fully_replicated:
                return np.asarray(value.addressable_data(0))
            return np.zeros(value.shape, value.dtype)

        return jax.tree.map(gather, in_tree)

    module.broadcast_one_to_all = broadcast_one_to_all
    module.process_allgather = process_allgather


# --- the devices of the other processes, as XLA's messages (protocol buffers) ---


def _find_most_devices() -> int:
    """Return the highest number of CPU devices that this jaxlib gives a process."""
    version = getattr(sys.modules.get("jaxlib.version"), "__version__", "")
    is_old = re.match(r"0\.[0-6]\.", version) is not None
    return 1 << 17 if is_old else 1 << 11


def make_topology_keys(rank: int, count: int, devices_each: int, most: int) -> dict[str, bytes]:
    """Return the keys that the other processes would write, for JAX's backend of CPU devices.

    Args:
        rank: number of this process.
        count: number of all processes.
        devices_each: number of devices of each.
        most: highest number of them: a device's id is its process's number times this, and its
            own number.

    """
    try:
        with open("/proc/sys/kernel/random/boot_id", "rb") as file:
            boot = file.read().strip()
    except OSError:  # macOS
        boot = b"unknown"
    processes = {n: _describe_process(n, devices_each, most, boot) for n in range(count)}
    if rank == 0:
        del processes[0]
        return {f"cpu:local_topology/cpu/{n}": text for n, text in processes.items()}
    whole = b"".join(_make_field(1, text) for text in processes.values())
    return {"cpu:global_topology/cpu": whole}


def _describe_process(number: int, count: int, most: int, boot: bytes) -> bytes:
    """Return a LocalTopologyProto: the process's number, its machine's boot id, its devices."""
    text = _make_field(1, number) + _make_field(2, boot)
    for local in range(count):
        whole = number * most + local
        device = _make_field(1, local) + _make_field(4, whole) + _make_field(8, b"cpu")
        device += _make_field(9, b"CpuDevice(id=%d)" % whole) + _make_field(10, b"cpu:%d" % whole)
        text += _make_field(3, device)
    return text


def _make_field(number: int, value: int | bytes) -> bytes:
    """Return a field; a number 0 is left out, as protocol buffers do."""
    if isinstance(value, bytes):
        return _make_varint(number << 3 | 2) + _make_varint(len(value)) + value
    return _make_varint(number << 3) + _make_varint(value) if value else b""


def _make_varint(number: int) -> bytes:
    text = b""
    while number > 127:
        text += bytes([number & 127 | 128])
        number >>= 7
    return text + bytes([number])

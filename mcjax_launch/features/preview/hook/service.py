"""Coordination service with one member, which JAX takes for that of the whole job.

Each process writes a description of its devices into the service's keys; process 0 joins them to
the description of all devices. Here the launcher's numbers stand for the other processes.
"""

from __future__ import annotations

import functools
import os
import re
import sys

from ....hook import devices, jax_internals
from ....wire.hook_environ import SOCKET

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

# Highest number of CPU devices of a process, since jaxlib 0.7 and before: a device's id is its
# process's number times this, and its own number.
_MOST_DEVICES, _MOST_BEFORE = 1 << 11, 1 << 17
_FLAG = r"--xla_force_host_platform_device_count=(\d+)"


def join(
    real: Callable[..., Any],
    filled: Mapping[str, Any],
    environ: Mapping[str, str],
    devices_each: int,
) -> Any:
    """Call JAX's initialize() for a job of one process, and then change the numbers to the job's.

    Args:
        real: JAX's own function.
        filled: arguments of the call in the job.
        environ: environment variables with which this process was started.
        devices_each: number of devices of a rank, unless the program has chosen another one.

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
    keys = make_topology_keys(rank, count, _count_devices(devices_each), _find_most_devices())
    for key, value in keys.items():
        state.client.key_value_set_bytes(key, value)
    _stand_in(jax_internals.get_extension().DistributedRuntimeClient)
    for key, text in devices.make_partition_keys(environ, count).items():
        state.client.key_value_set(key, text)
    return result


def _count_devices(each: int) -> int:
    """Return the number of devices that JAX will give this process."""
    config = getattr(sys.modules.get("jax"), "config", None)
    chosen = getattr(config, "jax_num_cpu_devices", -1)
    flag = re.search(_FLAG, os.environ.get("XLA_FLAGS", ""))
    return chosen if chosen > 0 else int(flag[1]) if flag else each


# --- the devices of the other processes, as XLA's messages (protocol buffers) ---


def _find_most_devices() -> int:
    """Return the highest number of CPU devices that this jaxlib gives a process."""
    version = getattr(sys.modules.get("jaxlib.version"), "__version__", "")
    found = re.match(r"(\d+)\.(\d+)", version)
    is_old = found is not None and (int(found[1]), int(found[2])) < (0, 7)
    return _MOST_BEFORE if is_old else _MOST_DEVICES


def make_topology_keys(
    rank: int, count: int, devices_each: int, most: int = _MOST_DEVICES
) -> dict[str, bytes]:
    """Return the keys that the other processes would write, for JAX's backend of CPU devices.

    Args:
        rank: number of this process.
        count: number of all processes.
        devices_each: number of devices of each.
        most: highest number of them.

    """
    boot = _read_boot_id()
    processes = {n: _describe_process(n, devices_each, most, boot) for n in range(count)}
    if rank == 0:
        del processes[0]
        return {f"cpu:local_topology/cpu/{n}": text for n, text in processes.items()}
    whole = b"".join(_make_field(1, text) for text in processes.values())
    return {"cpu:global_topology/cpu": whole}


def _read_boot_id() -> bytes:
    try:
        with open("/proc/sys/kernel/random/boot_id", "rb") as file:
            return file.read().strip()
    except OSError:  # macOS
        return b"unknown"


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


# --- barriers, and keys that other processes would write ---


_SETS = ("key_value_set", "key_value_set_bytes")
_GETS = ("blocking_key_value_get", "blocking_key_value_get_bytes")


def _stand_in(client: Any) -> None:
    """Let barriers return at once, and let keys of other ranks have the value of this rank's own.

    Args:
        client: jaxlib's class of clients of the service.

    """
    known: set[str] = set()
    own: dict[str, Any] = {}  # by the key, with its numbers replaced

    def wrap_set(real: Callable[..., Any]) -> Callable[..., Any]:
        def key_value_set(self: Any, key: str, value: Any, *args: Any, **kwargs: Any) -> Any:
            known.add(key)
            own[_generalize(key)] = value
            return real(self, key, value, *args, **kwargs)

        return key_value_set

    def wrap_get(real: Callable[..., Any]) -> Callable[..., Any]:
        def get(self: Any, key: str, *args: Any, **kwargs: Any) -> Any:
            if key in known:
                return real(self, key, *args, **kwargs)
            if _generalize(key) in own:
                return own[_generalize(key)]
            raise RuntimeError(
                f"--preview: the key {key!r} is set by another rank, which does not run"
            )

        return get

    for names, wrap in ((_SETS, wrap_set), (_GETS, wrap_get)):
        for name in names:
            real = getattr(client, name)
            setattr(client, name, functools.wraps(real)(wrap(real)))
    client.wait_at_barrier = lambda self, *args, **kwargs: None
    client.get_live_nodes = lambda self, processes: dict.fromkeys(processes, 0)


def _generalize(key: str) -> str:
    return re.sub(r"\d+", "#", key)

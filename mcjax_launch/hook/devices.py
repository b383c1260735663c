"""Devices of a rank: its own GPUs, the backends that JAX starts, and its slices."""

from __future__ import annotations

import os
import sys
from bisect import bisect_right

from ..wire.hook_environ import GPUS, SLICES
from ..wire.hook_messages import GPU_PLATFORMS, Backend, ProcessNumber
from . import first_backend, jax_internals
from .wrapping import wrap_like

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from .agent_link import AgentLink

# --- a rank's own GPUs ---
# JAX reads JAX_LOCAL_DEVICE_IDS only in initialize() (`jax/_src/distributed.py`): a program that
# never calls initialize() would open all GPUs of the host. The program's own settings win.

_OF_JAX = "JAX_LOCAL_DEVICE_IDS"
_VISIBLE = (
    *("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"),
    *("ZE_AFFINITY_MASK", "ONEAPI_DEVICE_SELECTOR"),
)
_FLAGS = tuple(f"jax_{platform}_visible_devices" for platform in GPU_PLATFORMS)
_ALL = "all"


def assign_gpus(environ: Mapping[str, str]) -> None:
    """Restrict jax to this rank's GPUs, even if the program never calls initialize().

    Args:
        environ: environment variables with which this rank was started.

    """
    ids = environ.get(GPUS)
    if ids and not _are_chosen(environ):
        _set_flags(_ALL, ids)


def leave_gpus_to_program(environ: Mapping[str, str]) -> None:
    """Undo the restriction of `assign_gpus` if the program has chosen devices itself.

    Call it before initialize(), and before the first backend starts, whichever comes first.
    """
    ids = environ.get(GPUS)
    if not ids or os.environ.get(_OF_JAX) != ids:
        return
    if _are_chosen(environ):
        _set_flags(ids, _ALL)
        del os.environ[_OF_JAX]
    elif any(value not in (_ALL, ids) for value in _get_flags().values()):
        del os.environ[_OF_JAX]


def _are_chosen(environ: Mapping[str, str]) -> bool:
    """Return whether the program has chosen its visible devices since it was started."""
    names = (*_VISIBLE, _OF_JAX)
    return any(os.environ.get(name) != environ.get(name) for name in names)


def _get_flags() -> dict[str, str]:
    """Return the values of the flags for visible devices that this jax has, by name."""
    values = _get_config().values
    return {name: values[name] for name in _FLAGS if name in values}


def _set_flags(old: str, new: str) -> None:
    for name, value in _get_flags().items():
        if value == old:
            _get_config().update(name, new)


def _get_config() -> Any:
    return sys.modules["jax._src.config"].config


# --- backends: their platforms, and the number that each gives this process ---
# If JAX finds no GPU, it silently uses the CPU, and the other ranks wait for this rank's devices.
#
# `jax.process_index()` is the backend's number. On TPUs libtpu chooses it without knowing the
# process id given to initialize(), and it differs even if the hosts are in order.

# JAX tries these on every machine. Any other platform has devices when it starts, or fails.
_TRIED = ("cpu", "tpu", "interpreter", "proxy")
_MOST_REASON = 300
#: Functions to call with each backend that JAX starts while the process is in the job; by name.
when_backend_starts: dict[str, Callable[[Any], object]] = {}


class Backends:
    """Patches of the functions with which JAX starts its backends.

    Args:
        link: the link to the agent.
        is_member: function that returns whether this process takes part in the job.
        environ: environment variables with which this rank was started.

    """

    def __init__(
        self, link: AgentLink, is_member: Callable[[], bool], environ: Mapping[str, str]
    ) -> None:
        self._link = link
        self._is_member = is_member
        self._environ = environ
        self._told: Any = None
        self._any_started = False

    def patch(self, bridge: Any) -> None:
        """Wrap two functions of JAX, to report each started backend and the default platform."""
        start, real = bridge._init_backend, bridge.backends

        def _init_backend(platform: str) -> Any:
            if platform in GPU_PLATFORMS:
                leave_gpus_to_program(self._environ)
            # The start may wait for other processes forever, so report it before.
            if platform not in _TRIED and self._is_member():
                self._link.send(Backend(str(platform), 0))
            if not self._any_started and not self._is_member():
                first_backend.record_start()
            self._any_started = True
            self._link.answer_by_thread()
            backend = start(platform)
            if self._is_member():
                for call in (self._report_number, *when_backend_starts.values()):
                    _try(call, backend)
            return backend

        def backends() -> Any:
            found = real()
            if self._told is not bridge._default_backend and self._is_member():
                self._told = bridge._default_backend
                _try(self._report, bridge)
            return found

        bridge._init_backend = wrap_like(start, _init_backend)
        bridge.backends = wrap_like(real, backends)

    def _report(self, bridge: Any) -> None:
        backend = bridge._default_backend
        platform, count = str(backend.platform), int(backend.local_device_count())
        why = _explain_missing_gpu(bridge) if platform == "cpu" else ""
        self._link.send(Backend(platform, count, why[:_MOST_REASON]))

    def _report_number(self, backend: Any) -> None:
        """Report the process number that a backend gives this process."""
        self._link.send(ProcessNumber(str(backend.platform), int(backend.process_index())))


def _explain_missing_gpu(bridge: Any) -> str:
    """Return why JAX uses the CPU although there is a GPU; "" without a GPU, or if chosen."""
    if bridge.config.jax_platforms.value:
        return ""
    from ..machine.gpus import find_hiding_setting  # as few ranks need it

    # JAX's own words then name other reasons: an error of the driver, a missing plugin.
    if hiding := find_hiding_setting(os.environ):
        return f"{hiding} hides this machine's GPUs"
    for name, error in bridge._backend_errors.items():
        if name in GPU_PLATFORMS:
            return f"{name}: {str(error).strip().partition(chr(10))[0]}"
    seen = getattr(bridge.hardware_utils, "has_visible_nvidia_gpu", None)
    if seen is None or not seen():
        return ""
    return f'jax has no CUDA plugin: {sys.executable} -m pip install "jax[cuda13]"'


def _try(call: Callable[[Any], object], subject: Any) -> None:
    try:
        call(subject)
    except Exception:  # an unknown version of JAX: the program must go on
        pass


# --- slices: devices that JAX assumes to be connected by a fast network ---
# JAX makes every machine a slice, on CPU too, where XLA uses the machine's boot id; and
# `jax.make_mesh` rejects devices of several slices. On CPU that says nothing about the network, so
# all CPU devices of a job are one slice unless the user has asked for others (`--slices`). XLA has
# no setting for that on CPU, so the attribute of JAX's devices is replaced. GPUs have a setting,
# the partition index of initialize(). TPUs know their slices themselves.

# Arguments of initialize() and the variables that it reads: today's names and jax 0.6's.
_ARGUMENTS = ("partition_index", "slice_index")
_VARIABLES = ("JAX_PARTITION_INDEX", "JAX_SLICE_INDEX")
# In the coordinator's key-value store: the partition index of each process, by the number that
# the CPU backend gives it.
_KEY = "mcjax_launch/partition_index"
_MOST_WAITING_MS = 10_000


def make_partition_argument(
    given: Mapping[str, Any], known: Mapping[str, Any], environ: Mapping[str, str]
) -> dict[str, int]:
    """Return the partition or slice index of this process, as an argument of initialize().

    Empty if the user has not asked for slices, if the program gives an index itself, or if this
    jax has no such argument.

    Args:
        given: arguments of the program's call, and the process id.
        known: arguments that initialize() of this jax accepts.
        environ: environment variables with which this process was started.

    """
    name = next((name for name in _ARGUMENTS if name in known), None)
    if name is None or not environ.get(SLICES) or find_partition(given) is not None:
        return {}
    starts = [int(start) for start in environ[SLICES].split(",")]
    return {name: bisect_right(starts, given["process_id"]) - 1}


def find_partition(given: Mapping[str, Any]) -> int | None:
    """Return the partition index that JAX will use for this process; None if there is none."""
    values = [given.get(name) for name in _ARGUMENTS]
    values += [os.environ.get(name) for name in _VARIABLES]
    for value in values:
        if value is not None:
            try:
                return int(value)
            except (TypeError, ValueError):  # JAX reports that
                return None
    return None


def replace_slice_index(given: Mapping[str, Any]) -> None:
    """Make CPU devices report this job's slices as `slice_index`; call it after initialize().

    Args:
        given: the arguments of initialize().

    """
    distributed: Any = sys.modules.get("jax._src.distributed")
    client = getattr(getattr(distributed, "global_state", None), "client", None)
    device_class = getattr(jax_internals.get_extension(), "Device", None)
    if device_class is None or client is None:
        return
    slices = _Slices(client, find_partition(given))
    when_backend_starts["slices"] = slices.on_backend_start
    for name in _ARGUMENTS:  # devices have attributes of the same names
        setattr(device_class, name, _make_slice_property(device_class, name, slices))


def make_partition_keys(environ: Mapping[str, str], count: int) -> dict[str, str]:
    """Return the keys with which all processes publish their slices; {} if there is one slice."""
    if not environ.get(SLICES):
        return {}
    starts = [int(start) for start in environ[SLICES].split(",")]
    return {f"{_KEY}/{n}": str(bisect_right(starts, n) - 1) for n in range(count)}


class _Slices:
    """Slice indices of the CPU devices, for each process.

    Args:
        client: a client of the coordinator's key-value store.
        own: the partition index of this process; None if all CPU devices are one slice.

    """

    def __init__(self, client: Any, own: int | None) -> None:
        self._client = client
        self._own = own
        self._known: dict[int, int] = {}

    def on_backend_start(self, backend: Any) -> None:
        """Publish this process's slice, with the process number that the CPU backend gave it."""
        if backend.platform == "cpu" and self._own is not None:
            process = backend.process_index()
            self._known[process] = self._own
            self._client.key_value_set(f"{_KEY}/{process}", str(self._own))

    def fetch_slice(self, process: int) -> int:
        """Return the index of a process's slice; wait until that process has published it."""
        if self._own is None:
            return 0
        if process not in self._known:
            try:
                key = f"{_KEY}/{process}"
                value = self._client.blocking_key_value_get(key, _MOST_WAITING_MS)
            except Exception:  # it has none, which the launcher reported when it joined
                value = "0"
            self._known[process] = int(value)
        return self._known[process]


def _make_slice_property(device_class: Any, name: str, slices: _Slices) -> property:
    """Return a property with CPU devices' slices; other devices keep JAX's own attribute."""
    real = device_class.__getattr__

    def index(device: Any) -> int:
        if device.platform != "cpu":
            raise AttributeError(name)  # Python asks `real` then
        real(device, name)  # which raises where this jax has no such attribute
        return slices.fetch_slice(device.process_index)

    return property(index)


def list_process_slices() -> tuple[int, ...]:
    """Return JAX's slice index of each process's first device, in process order; () on an error.

    Used for a program that has failed because of several slices, so its backend has started.
    """
    jax: Any = sys.modules.get("jax")
    found: dict[int, int] = {}
    try:
        for device in jax.devices():
            found.setdefault(device.process_index, device.slice_index)
        return tuple(found[process] for process in range(len(found)))
    except Exception:  # a device's plugin may raise anything: report the failure without slices
        return ()

"""Lookup of the GPUs that a program started on this machine would see.

NVIDIA's are found by files of the driver, where possible: `nvidia-smi` starts the driver on each
GPU (which takes seconds without persistence mode), and fails altogether if a GPU is lost. AMD's and
Intel's are those that variables name.

CUDA's order is assumed to be that of the PCI bus, which is right for GPUs of the same model.

The rules for CUDA_VISIBLE_DEVICES follow the source of PyTorch's
`torch.cuda._parse_visible_devices`.
"""

from __future__ import annotations

import os
import re

from ..wire.messages import VisibleGpus
from ..wire.value import Value
from .system import LINUX, list_names, read_system_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_CUDA, _HIP, _ROCR = "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"
_LEVEL_ZERO = "ZE_AFFINITY_MASK"
# Folder of the kernel's that has a folder for each PCI device, named after its address.
_PCI = "sys/bus/pci/devices"
_OF_JAX = "JAX_LOCAL_DEVICE_IDS"
# The part of a GPU's memory that JAX allocates; it refuses both together.
_FRACTIONS = ("XLA_PYTHON_CLIENT_MEM_FRACTION", "XLA_CLIENT_MEM_FRACTION")
_NVIDIA_SMI_S, _KILLED_S = 30.0, 1.0
_LONGEST = 60
_LOST = b"\xff\xff"  # the vendor id that a device reports when it has fallen off its bus

_DEVICE_MINOR = re.compile(r"^Device Minor:[ \t]*(\d{1,9})", re.MULTILINE)
_DEVICE_FILE = re.compile(r"nvidia\d{1,9}")
_MIG_UUID = re.compile(r"\(UUID: (MIG-[\w/-]{1,200})\)")
_UUID = re.compile(r"^GPU UUID:[ \t]*(GPU-[\w-]{1,60})", re.MULTILINE)
_MODEL = re.compile(r"^Model:[ \t]*(\S.{0,99})", re.MULTILINE)
_CORES = re.compile(r"[\d,-]{1,4000}")
_ORDINAL = re.compile(r"[+]?\d{1,9}")


class Gpu(Value):
    """GPU of this machine: PCI bus address, model name and UUID ("" if unknown)."""

    bus: str
    model: str = ""
    uuid: str = ""


def find_visible_gpus(environ: Mapping[str, str], root: str = "/") -> VisibleGpus:
    """Return the GPUs that a program with this environment would see.

    Args:
        environ: environment variables of the program.
        root: path of the root of the file system, for tests.

    """
    if not LINUX:  # no GPU there can be shared by several ranks
        return VisibleGpus()
    if environ.get("JAX_PLATFORMS") == "cpu":
        return VisibleGpus(counted="JAX_PLATFORMS=cpu")
    is_amd = _CUDA not in environ and (_HIP in environ or _ROCR in environ)
    found = VisibleGpus() if is_amd else _find_visible_nvidia(environ, root)
    found = found if found.counted else _find_named(environ)
    found = _select_for_jax(found, environ)
    return found.copy_with(memory_set=True) if _sets_memory(environ) else found


def _sets_memory(environ: Mapping[str, str]) -> bool:
    """Return whether variables say how much of a GPU JAX allocates at its start, if anything."""
    if any(environ.get(name) for name in _FRACTIONS):
        return True
    is_off = environ.get("XLA_PYTHON_CLIENT_PREALLOCATE") in ("false", "False", "0")
    return is_off or environ.get("XLA_PYTHON_CLIENT_ALLOCATOR", "").lower() == "platform"


def find_hiding_setting(environ: Mapping[str, str], root: str = "/") -> str:
    """Return the setting that hides all of NVIDIA's GPUs here, as `CUDA_VISIBLE_DEVICES=-1`.

    It is "" if there is no such GPU, or no such setting. For the arguments see `find_visible_gpus`.
    """
    is_set = _CUDA in environ and (bool(_list_nvidia_devices(root)[0]) or _is_wsl(root))
    found = _find_visible_nvidia(environ, root) if is_set else VisibleGpus()
    return "" if found.count else found.counted


def _select_for_jax(found: VisibleGpus, environ: Mapping[str, str]) -> VisibleGpus:
    """Return the GPUs among `found` that JAX_LOCAL_DEVICE_IDS selects."""
    value = environ.get(_OF_JAX, "")
    if found.mig or not value:
        return found
    try:
        ids = [int(entry) for entry in value.split(",")]
    except ValueError:  # JAX reports that
        return found
    there = tuple(entry for entry in ids if entry in found.ids or not found.counted)
    near = tuple(found.near[entry] for entry in there) if found.near else ()
    return VisibleGpus(there, counted=_format_setting(_OF_JAX, value), near=near)


# --- NVIDIA ---


def select_own_gpus(environ: Mapping[str, str], uuids: Sequence[str]) -> list[int]:
    """Return the indices of the GPUs that a program with this environment uses.

    Args:
        environ: environment variables of the program.
        uuids: UUID of each GPU of this machine.

    """
    own = list(range(len(uuids)))
    if _CUDA in environ:
        named = [_match_entry(entry, uuids) for entry in _parse_device_list(environ[_CUDA], None)]
        own = [numbers[0] for numbers in named if len(numbers) == 1]
    if ids := environ.get(_OF_JAX):
        chosen = [int(entry) for entry in ids.split(",") if entry.strip().isdecimal()]
        own = [own[entry] for entry in chosen if entry < len(own)]
    return own


def _find_visible_nvidia(environ: Mapping[str, str], root: str) -> VisibleGpus:
    there, counted = _list_nvidia_devices(root)
    if _CUDA in environ:
        value = environ[_CUDA]
        entries = _parse_device_list(value, len(there) or None)
        mig = tuple(entry for entry in entries if entry.startswith("MIG-"))
        near = _find_nvidia_cores(_find_named_gpus(entries, there), environ, root)
        near = near if len(near) == len(entries) else ()
        return VisibleGpus(tuple(range(len(entries))), mig, _format_setting(_CUDA, value), near)
    if not there and _is_wsl(root):
        lines = _list_nvidia_smi_lines("GPU ")
        return VisibleGpus(tuple(range(len(lines))), counted="nvidia-smi -L")
    if there and _has_mig(root):
        mig = tuple(_MIG_UUID.findall("\n".join(_list_nvidia_smi_lines("MIG "))))
        return VisibleGpus(tuple(range(len(mig))), mig, "nvidia-smi -L")
    near = _find_nvidia_cores(there, environ, root)
    return VisibleGpus(tuple(range(len(there))), counted=counted if there else "", near=near)


def _is_wsl(root: str) -> bool:
    """Return whether this is Linux on Windows with GPUs, which all share one device file."""
    return os.path.exists(os.path.join(root, "dev/dxg"))


def _list_nvidia_devices(root: str) -> tuple[list[Gpu], str]:
    """Return the GPUs that this user may open, and the name of the files that list them."""
    found = _read_nvidia_gpus(root)
    if found is not None:
        return found, "/proc/driver/nvidia/gpus"
    minors = filter(_DEVICE_FILE.fullmatch, list_names(os.path.join(root, "dev")))
    return [Gpu(name) for name in minors if _may_open(root, name)], "/dev/nvidia*"


def _read_nvidia_gpus(root: str) -> list[Gpu] | None:
    """Return the GPUs in the driver's /proc files that this user may open; None if no such file.

    Containers and schedulers' cgroups hide device files or forbid opening them. access() shows it
    without opening a file, which would start the GPU.
    """
    folder = os.path.join(root, "proc/driver/nvidia/gpus")
    buses = list_names(folder)
    found = []
    for bus in buses:
        text = read_system_text(os.path.join(folder, bus, "information"))
        minor, model, uuid = (known.search(text) for known in (_DEVICE_MINOR, _MODEL, _UUID))
        if minor and _may_open(root, f"nvidia{minor[1]}") and not _is_lost(root, bus):
            found.append(Gpu(bus, model[1].rstrip() if model else "", uuid[1] if uuid else ""))
    return found if buses else None


def _match_entry(entry: str, uuids: Sequence[str]) -> list[int]:
    """Return the indices in `uuids` that an entry matches: an index, or the start of a UUID."""
    return [n for n, uuid in enumerate(uuids) if entry == str(n) or uuid.startswith(entry)]


def _find_named_gpus(entries: Sequence[str], there: Sequence[Gpu]) -> list[Gpu]:
    """Return the GPU for each entry that names exactly one; other entries are left out."""
    named = [_match_entry(entry, [gpu.uuid for gpu in there]) for entry in entries]
    return [there[numbers[0]] for numbers in named if len(numbers) == 1]


def _find_nvidia_cores(
    there: Sequence[Gpu], environ: Mapping[str, str], root: str
) -> tuple[str, ...]:
    """Return each GPU's nearest CPU cores; () if unknown or if CUDA may order GPUs differently."""
    models = {gpu.model for gpu in there if gpu.model}
    if len(models) > 1 and environ.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        return ()
    folder = os.path.join(root, _PCI)
    lists = [read_system_text(os.path.join(folder, gpu.bus, "local_cpulist")) for gpu in there]
    return tuple(lists) if all(map(_CORES.fullmatch, lists)) else ()


def _may_open(root: str, name: str) -> bool:
    return os.access(os.path.join(root, "dev", name), os.R_OK | os.W_OK)


def _is_lost(root: str, bus: str) -> bool:
    try:
        with open(os.path.join(root, _PCI, bus, "config"), "rb") as config:
            return config.read(2) == _LOST
    except OSError:
        return False


def _has_mig(root: str) -> bool:
    """Return whether any GPU is split into MIG devices, of which a process can use only one."""
    folder = os.path.join(root, "proc/driver/nvidia/capabilities")
    return any(
        name.startswith("gi")
        for gpu in list_names(folder)
        if gpu.startswith("gpu")
        for name in list_names(os.path.join(folder, gpu, "mig"))
    )


def _list_nvidia_smi_lines(begins: str) -> list[str]:
    """Return the lines of `nvidia-smi -L` that start with `begins`."""
    lines = _run_nvidia_smi().splitlines()
    return [line for line in lines if line.strip().startswith(begins)]


def _run_nvidia_smi() -> str:
    """Return the output of `nvidia-smi -L`, even after an error; "" if it fails or is too slow."""
    import subprocess

    try:
        process = subprocess.Popen(
            ["nvidia-smi", "-L"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
    except OSError:
        return ""
    try:
        return process.communicate(timeout=_NVIDIA_SMI_S)[0].decode("utf-8", "replace")
    except subprocess.TimeoutExpired:
        process.kill()
    try:  # nvidia-smi cannot even be killed while it waits for the driver
        process.communicate(timeout=_KILLED_S)
    except subprocess.TimeoutExpired:
        pass
    return ""


# --- AMD and Intel ---


def _find_named(environ: Mapping[str, str]) -> VisibleGpus:
    """Return the GPUs that AMD's variables name, or Intel's."""
    count, counted = None, ""
    for name in (_ROCR, _HIP):  # the second renumbers what the first leaves
        if name in environ:
            count = len(_parse_device_list(environ[name], count))
            counted = _format_setting(name, environ[name])
    if count is None and _LEVEL_ZERO in environ:  # its entries may be tiles: 0.0,0.1
        value = environ[_LEVEL_ZERO]
        count = len({entry.strip() for entry in value.split(",") if entry.strip()})
        counted = _format_setting(_LEVEL_ZERO, value)
    return VisibleGpus(tuple(range(count or 0)), counted=counted)


# --- lists of devices ---


def _parse_device_list(value: str, most: int | None) -> Sequence[str]:
    """Return the entries of a device list, up to the first invalid one; [] if one is repeated.

    Args:
        value: text such as `0,1` or `GPU-1f2e,GPU-3c4d`, all entries of the same kind.
        most: number of devices, to which no entry may be equal or greater; None if unknown.

    """
    entries: list[str] = []
    kind = next((kind for kind in ("GPU-", "MIG-") if value.strip().startswith(kind)), "")
    for word in value.split(","):
        entry = word.strip()
        if not kind:
            number = _ORDINAL.match(entry)
            if number is None or (most is not None and int(number[0]) >= most):
                break
            entry = str(int(number[0]))
        elif not entry.startswith(kind):
            break
        if entry in entries:
            return []
        entries.append(entry)
    return entries


def _format_setting(name: str, value: str) -> str:
    shown = value if len(value) <= _LONGEST else value[: _LONGEST - 3] + "..."
    return f"{name}={shown!r}" if not shown or shown != shown.strip() else f"{name}={shown}"

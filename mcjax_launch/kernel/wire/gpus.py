"""Counts the GPUs that a program started here would see.

They are counted without the vendors' own software where that is possible: `nvidia-smi` starts the
driver on each GPU (seconds, without persistence mode), and fails as a whole where one is lost.

CUDA's order is taken for that of the PCI bus, which it is for GPUs of one model.

The rules of CUDA_VISIBLE_DEVICES are those of PyTorch's `torch.cuda._parse_visible_devices`, read.
"""

from __future__ import annotations

import os
import re

from .messages import VisibleGpus
from .system import LINUX, text_of
from .value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_CUDA, _HIP, _ROCR = "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"
_LEVEL_ZERO = "ZE_AFFINITY_MASK"
#: The folder of each device, by its bus.
PCI = "sys/bus/pci/devices"
_OF_JAX = "JAX_LOCAL_DEVICE_IDS"
_NVIDIA_SMI_S, _KILLED_S = 30.0, 1.0
_LONGEST, _MOST_DIGITS = 60, 12
_LOST = b"\xff\xff"  # what a device that has fallen off its bus says of itself

_DEVICE_MINOR = re.compile(r"^Device Minor:[ \t]*(\d{1,9})", re.MULTILINE)
_DEVICE_FILE = re.compile(r"nvidia\d{1,9}")
_MIG_UUID = re.compile(r"\(UUID: (MIG-[\w/-]{1,200})\)")
_UUID = re.compile(r"^GPU UUID:[ \t]*(GPU-[\w-]{1,60})", re.MULTILINE)
_MODEL = re.compile(r"^Model:[ \t]*(\S.{0,99})", re.MULTILINE)
_CORES = re.compile(r"[\d,-]{1,4000}")
_ORDINAL = re.compile(r"[+]?\d{1,9}")


class Gpu(Value):
    """A GPU of this machine: where it is, and as far as the driver says so, its model and id."""

    bus: str
    model: str = ""
    uuid: str = ""


def visible(environ: Mapping[str, str], root: str = "/") -> VisibleGpus:
    """What there is for a program with this environment.

    Args:
        environ: as its ranks will have it.
        root: of the machine's file system.

    """
    if not LINUX:  # there is none that several ranks could share
        return VisibleGpus()
    if environ.get("JAX_PLATFORMS") == "cpu":
        return VisibleGpus(counted="JAX_PLATFORMS=cpu")
    is_amd = _CUDA not in environ and (_HIP in environ or _ROCR in environ)
    found = VisibleGpus() if is_amd else _nvidia(environ, root)
    if not found.counted:
        found = _amd(environ, root)
    if not found.counted:
        found = _intel(environ, root)
    return _chosen_for_jax(found, environ)


def _chosen_for_jax(found: VisibleGpus, environ: Mapping[str, str]) -> VisibleGpus:
    """Those of them that JAX itself is told to use."""
    value = environ.get(_OF_JAX, "")
    if found.mig or not value:
        return found
    try:
        ids = [int(entry) for entry in value.split(",")]
    except ValueError:  # JAX says that
        return found
    there = tuple(entry for entry in ids if entry in found.ids or not found.counted)
    near = tuple(found.near[entry] for entry in there) if found.near else ()
    return VisibleGpus(there, counted=_setting(_OF_JAX, value), near=near)


# --- NVIDIA ---


def _nvidia(environ: Mapping[str, str], root: str) -> VisibleGpus:
    there, counted = _nvidia_devices(root)
    if _CUDA in environ:
        value = environ[_CUDA]
        entries = _listed(value, len(there) or None)
        mig = tuple(entry for entry in entries if entry.startswith("MIG-"))
        near = _near_to(_named(entries, there), environ, root)
        near = near if len(near) == len(entries) else ()
        return VisibleGpus(tuple(range(len(entries))), mig, _setting(_CUDA, value), near)
    # On Windows' Linux there is one device for all of them.
    if not there and os.path.exists(os.path.join(root, "dev/dxg")):
        lines = _listed_by_nvidia_smi("GPU ")
        return VisibleGpus(tuple(range(len(lines))), counted="nvidia-smi -L")
    if there and _has_mig(root):
        mig = tuple(_MIG_UUID.findall("\n".join(_listed_by_nvidia_smi("MIG "))))
        return VisibleGpus(tuple(range(len(mig))), mig, "nvidia-smi -L")
    near = _near_to(there, environ, root)
    return VisibleGpus(tuple(range(len(there))), counted=counted if there else "", near=near)


def _nvidia_devices(root: str) -> tuple[list[Gpu], str]:
    """Return the GPUs that this user may open, as by `nvidia_gpus`, and where that stands."""
    found = nvidia_gpus(root)
    if found is not None:
        return found, "/proc/driver/nvidia/gpus"
    minors = [name for name in _entries(os.path.join(root, "dev")) if _is_device(name)]
    return [Gpu(name) for name in minors if _may_open(root, name)], "/dev/nvidia*"


def nvidia_gpus(root: str) -> list[Gpu] | None:
    """Return the GPUs in the driver's files that this user may open; None if there are no files.

    A container or a scheduler's cgroup leaves out device files, or forbids to open them, which
    access() says without opening them: to open one would start it.
    """
    folder = os.path.join(root, "proc/driver/nvidia/gpus")
    buses = _entries(folder)
    found = []
    for bus in buses:
        text = text_of(os.path.join(folder, bus, "information"))
        minor, model, uuid = (known.search(text) for known in (_DEVICE_MINOR, _MODEL, _UUID))
        if minor and _may_open(root, f"nvidia{minor[1]}") and not _is_lost(root, bus):
            found.append(Gpu(bus, model[1].rstrip() if model else "", uuid[1] if uuid else ""))
    return found if buses else None


def chosen(environ: Mapping[str, str], uuids: Sequence[str]) -> list[int]:
    """Return the numbers of the GPUs with these ids that CUDA_VISIBLE_DEVICES leaves."""
    if _CUDA not in environ:
        return list(range(len(uuids)))
    entries = _listed(environ[_CUDA], len(uuids))
    return sorted(number for entry in entries for number in _numbers(entry, uuids))


def _numbers(entry: str, uuids: Sequence[str]) -> list[int]:
    """Return the numbers of those that an entry stands for: a number, or the beginning of an id."""
    return [n for n, uuid in enumerate(uuids) if entry == str(n) or uuid.startswith(entry)]


def _named(entries: Sequence[str], there: Sequence[Gpu]) -> list[Gpu]:
    """Return those of a list, as far as they are known, which a MIG device is not."""
    named = [_numbers(entry, [gpu.uuid for gpu in there]) for entry in entries]
    return [there[numbers[0]] for numbers in named if len(numbers) == 1]


def _near_to(there: Sequence[Gpu], environ: Mapping[str, str], root: str) -> tuple[str, ...]:
    """Return the cores next to each of these; empty if CUDA may have them in another order."""
    models = {gpu.model for gpu in there if gpu.model}
    if len(models) > 1 and environ.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        return ()
    return _near([gpu.bus for gpu in there], root)


def _is_device(name: str) -> bool:
    return _DEVICE_FILE.fullmatch(name) is not None


def _may_open(root: str, name: str) -> bool:
    return os.access(os.path.join(root, "dev", name), os.R_OK | os.W_OK)


def _is_lost(root: str, bus: str) -> bool:
    try:
        with open(os.path.join(root, PCI, bus, "config"), "rb") as config:
            return config.read(2) == _LOST
    except OSError:
        return False


def _has_mig(root: str) -> bool:
    """Whether a GPU is split into MIG devices: then a process has one of those, or none."""
    folder = os.path.join(root, "proc/driver/nvidia/capabilities")
    return any(
        name.startswith("gi")
        for gpu in _entries(folder)
        if gpu.startswith("gpu")
        for name in _entries(os.path.join(folder, gpu, "mig"))
    )


def _listed_by_nvidia_smi(begins: str) -> list[str]:
    """Return the lines in which it lists GPUs, or MIG devices."""
    lines = nvidia_smi(_NVIDIA_SMI_S, "-L").splitlines()
    return [line for line in lines if line.strip().startswith(begins)]


def nvidia_smi(most_s: float, *options: str) -> str:
    """Return what it prints in so many seconds; it also fails when it has listed some GPUs."""
    import subprocess

    try:
        process = subprocess.Popen(
            ["nvidia-smi", *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
    except OSError:
        return ""
    try:
        return process.communicate(timeout=most_s)[0].decode("utf-8", "replace")
    except subprocess.TimeoutExpired:
        process.kill()
    try:  # one that waits for a driver cannot even be killed
        process.communicate(timeout=_KILLED_S)
    except subprocess.TimeoutExpired:
        pass
    return ""


# --- AMD ---


def _amd(environ: Mapping[str, str], root: str) -> VisibleGpus:
    there = [gpu.bus for gpu in amd_gpus(root)]
    counted = "/sys/class/kfd" if there else ""
    for names in ((_ROCR,), (_HIP, _CUDA)):  # the second has its numbers from what the first leaves
        name = next((name for name in names if name in environ), None)
        if name is not None:
            entries = _listed(environ[name], len(there) or None)
            numbers = [int(entry) for entry in entries if there and entry.isdecimal()]
            there = [there[number] for number in numbers] or [""] * len(entries)
            counted = _setting(name, environ[name])
            if not there:
                break
    return VisibleGpus(tuple(range(len(there))), counted=counted, near=_near(there, root))


def amd_gpus(root: str) -> list[Gpu]:
    """Return the GPUs of AMD's that this user may open, in the driver's order."""
    folder = os.path.join(root, "sys/class/kfd/kfd/topology/nodes")
    found = []
    for node in sorted(_entries(folder), key=lambda name: (len(name), name)):
        text = text_of(os.path.join(folder, node, "properties"))
        properties = dict(line.split(" ", 1) for line in text.splitlines() if " " in line)
        minor = properties.get("drm_render_minor", "0")
        is_gpu = properties.get("simd_count", "0") != "0"
        if is_gpu and (minor == "0" or _may_open(root, f"dri/renderD{minor}")):
            bus = _amd_bus(properties)
            model = text_of(os.path.join(root, PCI, bus, "product_name")) if bus else ""
            version = properties.get("gfx_target_version", "")
            found.append(Gpu(bus, model or _architecture(version)))
    return found


def _architecture(version: str) -> str:
    """Return `AMD gfx942` for 90402."""
    if not version.isdecimal() or len(version) > _MOST_DIGITS or int(version) == 0:
        return "AMD GPU"
    major, rest = divmod(int(version), 10_000)
    return f"AMD gfx{major}{rest // 100:x}{rest % 100:x}"


def _amd_bus(properties: Mapping[str, str]) -> str:
    domain, location = properties.get("domain", "0"), properties.get("location_id", "")
    if not (domain.isdecimal() and location.isdecimal()):
        return ""
    bus, slot = divmod(int(location), 1 << 8)
    return f"{int(domain):04x}:{bus & 0xFF:02x}:{slot >> 3:02x}.{slot & 7}"


# --- Intel: read, and not run on such a GPU ---


def _intel(environ: Mapping[str, str], root: str) -> VisibleGpus:
    """Return those for data centres: a laptop's is a display, which JAX's plugin does not take.

    Each tile is a device, unless Level Zero is to show whole cards.
    """
    devices = os.path.join(root, PCI)
    buses: list[str] = []
    for bus in _entries(devices):
        kind = [text_of(os.path.join(devices, bus, name)) for name in ("vendor", "class")]
        drm = os.path.join(devices, bus, "drm")
        nodes = [name for name in _entries(drm) if name.startswith("renderD")]
        if kind == ["0x8086", "0x038000"] and all(_may_open(root, f"dri/{node}") for node in nodes):
            whole = environ.get("ZE_FLAT_DEVICE_HIERARCHY") == "COMPOSITE"
            buses += [bus] * (1 if whole else _tiles(os.path.join(devices, bus), drm))
    if _LEVEL_ZERO in environ:
        value = environ[_LEVEL_ZERO]
        named = {entry.strip() for entry in value.split(",") if entry.strip()}
        return VisibleGpus(tuple(range(len(named))), counted=_setting(_LEVEL_ZERO, value))
    counted = f"/{PCI}" if buses else ""
    return VisibleGpus(tuple(range(len(buses))), counted=counted, near=_near(buses, root))


def are_intel(found: VisibleGpus) -> bool:
    """Return whether these are Intel's, of which nothing else is known."""
    return found.counted.startswith((f"/{PCI}", _LEVEL_ZERO))


def _tiles(device: str, drm: str) -> int:
    """Return how many tiles a card has, as the kernel's drivers xe and i915 show them."""
    of_xe = [name for name in _entries(device) if name.startswith("tile")]
    cards = [name for name in _entries(drm) if name.startswith("card")]
    of_i915 = [name for card in cards for name in _entries(os.path.join(drm, card, "gt"))]
    return max(len(of_xe), len(of_i915), 1)


# --- lists of devices ---


def _listed(value: str, most: int | None) -> Sequence[str]:
    """The devices of a list, which ends before the first that is none; named twice, it has none.

    Args:
        value: numbers, or ids such as `GPU-1f2e` and `MIG-3c4d`, of one kind.
        most: numbers are below that; None where it is not known.

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


def _setting(name: str, value: str) -> str:
    shown = value if len(value) <= _LONGEST else value[: _LONGEST - 3] + "..."
    return f"{name}={shown!r}" if not shown or shown != shown.strip() else f"{name}={shown}"


# --- files ---


def _near(buses: Sequence[str], root: str) -> tuple[str, ...]:
    """The cores next to each; empty where that is not known of all."""
    folder = os.path.join(root, PCI)
    lists = [bus and text_of(os.path.join(folder, bus, "local_cpulist")) for bus in buses]
    return tuple(lists) if all(map(_CORES.fullmatch, lists)) else ()


def _entries(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []

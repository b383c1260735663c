"""The GPUs of this host, for --check: their models, their driver, and what of their memory is free.

The kernel tells of the first two in files; of NVIDIA's memory only `nvidia-smi` knows, which takes
seconds where the driver has no persistence mode, and fails as a whole where a GPU is lost.
"""

from __future__ import annotations

import os
import re
import subprocess

from ....kernel.wire import gpus
from ....kernel.wire.system import LINUX, text_of
from ....kernel.wire.value import Value
from ..messages import GpuFacts, GpuMemory

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ....kernel.wire.messages import VisibleGpus

_QUERY = "index,uuid,name,driver_version,memory.free,memory.total"
_FIELDS = len(_QUERY.split(","))
_MOST_S = 8.0
_KILLED_S = 1.0
_LONGEST = 100  # of what a driver calls anything
_MODEL = re.compile(r"^Model:[ \t]*(\S.*)", re.MULTILINE)
_UUID = re.compile(r"^GPU UUID:[ \t]*(GPU-\S{1,100})", re.MULTILINE)
_DRIVER = re.compile(r"^NVRM version:.*?[ \t](\d{1,5}(?:\.\d{1,5}){1,2})\b", re.MULTILINE)
_NUMBER = re.compile(r"\d{1,12}")
_UNNAMED = "GPU"


class _Gpu(Value):
    """A GPU of this host; its memory, where that is known."""

    name: str
    uuid: str = ""
    memory: GpuMemory | None = None


def begin() -> subprocess.Popen[bytes] | None:
    """Have `nvidia-smi` begin, if there is one: it is read by `look`."""
    try:
        return subprocess.Popen(
            ["nvidia-smi", f"--query-gpu={_QUERY}", "--format=csv,noheader,nounits"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
    except OSError:
        return None


def said_by(listing: subprocess.Popen[bytes] | None) -> str:
    """What it has said, of which it is given seconds; "" if it has failed."""
    if listing is None:
        return ""
    try:
        out, _ = listing.communicate(timeout=_MOST_S)
    except subprocess.TimeoutExpired:
        listing.kill()
        try:  # one that waits for a driver cannot even be killed
            listing.communicate(timeout=_KILLED_S)
        except subprocess.TimeoutExpired:
            pass
        return ""
    return out.decode("utf-8", "replace") if listing.returncode == 0 else ""


def look(
    listed: str, environ: Mapping[str, str], root: str = "/"
) -> tuple[tuple[GpuFacts, ...], tuple[GpuMemory, ...]]:
    """The GPUs that a program started here would see, by kind, and the memory of each.

    Args:
        listed: what `nvidia-smi` says.
        environ: of the program.
        root: of the file system.

    """
    if not LINUX:
        return (), ()
    visible = gpus.visible(environ, root)
    by_tool, driver = _of_tool(listed)
    found = _of_driver(root) or by_tool
    if found:
        driver = _driver(root) or driver
        by_tool = _visible(by_tool, environ)
        found = _visible(found, environ)
    else:
        driver = text_of(os.path.join(root, "sys/module/amdgpu/version"))[:_LONGEST]
        by_tool = found = _of_amd(root)
    memory = tuple(gpu.memory for gpu in by_tool if gpu.memory is not None)
    kinds = _kinds(found, visible, driver)
    # Of a part of a GPU the memory is not known, nor which part of AMD's a variable leaves.
    whole = not visible.mig and len(by_tool) == sum(kind.count for kind in kinds)
    return kinds, memory if whole else ()


def shared_memory_kib(root: str = "/") -> tuple[int, int]:
    """The size of /dev/shm, where NCCL's processes meet, and what is free of it; 0: not known."""
    if not LINUX:
        return 0, 0
    try:
        found = os.statvfs(os.path.join(root, "dev/shm"))
    except OSError:
        return 0, 0
    return found.f_blocks * found.f_frsize >> 10, found.f_bavail * found.f_frsize >> 10


def _kinds(found: Sequence[_Gpu], visible: VisibleGpus, driver: str) -> tuple[GpuFacts, ...]:
    counts: dict[str, int] = {}
    for gpu in found:
        counts[gpu.name] = counts.get(gpu.name, 0) + 1
    if visible.mig:
        name = next(iter(counts), _UNNAMED)
        counts = {f"MIG device of {name}": visible.count}
    elif visible.count != len(found) and (visible.counted or not found):
        counts = {next(iter(counts), _UNNAMED): visible.count} if visible.count else {}
    return tuple(GpuFacts(name, driver, count) for name, count in counts.items())


def _visible(found: list[_Gpu], environ: Mapping[str, str]) -> list[_Gpu]:
    """Those that CUDA_VISIBLE_DEVICES leaves, by number or by the beginning of an id."""
    chosen = gpus.chosen(environ, len(found))
    if chosen is None:
        return found
    return [
        gpu
        for number, gpu in enumerate(found)
        if any(
            gpu.uuid.startswith(entry) if entry.startswith("GPU-") else entry == str(number)
            for entry in chosen
        )
    ]


# --- NVIDIA ---


def _of_driver(root: str) -> list[_Gpu]:
    return [
        _Gpu(_first(_MODEL, text) or _UNNAMED, _first(_UUID, text))
        for text in (gpus.nvidia_information(root) or {}).values()
    ]


def _driver(root: str) -> str:
    return _first(_DRIVER, text_of(os.path.join(root, "proc/driver/nvidia/version")))


def _first(pattern: re.Pattern[str], text: str) -> str:
    found = pattern.search(text)
    return found[1].strip()[:_LONGEST] if found else ""


def _of_tool(listed: str) -> tuple[list[_Gpu], str]:
    """The GPUs that `nvidia-smi` lists, and the driver's version."""
    found, version = [], ""
    for line in listed.splitlines():
        fields = [field.strip()[:_LONGEST] for field in line.split(",", _FIELDS)]
        if len(fields) == _FIELDS and _NUMBER.fullmatch(fields[0]):
            number, uuid, name, version, free, total = fields
            found.append(_Gpu(name, uuid, _memory(int(number), total, free, 1 << 10)))
    return found, version


def _memory(number: int, total: str, free: str, unit: int) -> GpuMemory | None:
    """What is known of it; a GPU that shares the host's memory says `[N/A]`.

    Args:
        unit: of the two numbers, in KiB.

    """
    if not (_NUMBER.fullmatch(total) and _NUMBER.fullmatch(free)):
        return None
    all_kib = int(total) * unit
    return GpuMemory(number, all_kib, min(int(free) * unit, all_kib))


# --- AMD ---


def _of_amd(root: str) -> list[_Gpu]:
    return [
        _amd(number, properties, root)
        for number, properties in enumerate(gpus.amd_properties(root))
    ]


def _amd(number: int, properties: Mapping[str, str], root: str) -> _Gpu:
    minor = properties.get("drm_render_minor", "0")[:_LONGEST]
    device = os.path.join(root, f"sys/class/drm/renderD{minor}/device")
    name = text_of(os.path.join(device, "product_name"))[:_LONGEST]
    total, used = (
        text_of(os.path.join(device, f"mem_info_vram_{which}"))[:_LONGEST]
        for which in ("total", "used")
    )
    memory = None
    if _NUMBER.fullmatch(total) and _NUMBER.fullmatch(used):
        free = max(0, int(total) - int(used))
        memory = GpuMemory(number, int(total) >> 10, free >> 10)
    return _Gpu(name or _architecture(properties.get("gfx_target_version", "")), "", memory)


def _architecture(version: str) -> str:
    """`gfx942` for 90402."""
    if not _NUMBER.fullmatch(version) or int(version) == 0:
        return "AMD GPU"
    major, rest = divmod(int(version), 10_000)
    return f"AMD gfx{major}{rest // 100:x}{rest % 100:x}"

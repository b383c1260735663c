"""What this host has to run on, for --check: whatever is missing, the rest is found out."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import time

from ...kernel.agent.network import addresses_of_interfaces
from ...kernel.agent.part import AgentPart
from ...kernel.agent.startup import Prepared, folder, no_python
from ...kernel.agent.system import system
from ...kernel.wire import gpus, interpreter
from ...kernel.wire.codec import Malformed, from_json, from_values
from ...kernel.wire.interpreter import Unusable
from ...kernel.wire.messages import Bind, Prepare
from ...kernel.wire.system import LINUX, text_of
from ...kernel.wire.value import Value
from .messages import (
    CountDevices,
    DeviceCount,
    DevicesCounted,
    GpuFacts,
    GpuMemory,
    NetworkInterface,
    PythonFacts,
    Survey,
    Surveyed,
    TellTime,
    Time,
)

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ...kernel.wire.codec import Message
    from ...kernel.wire.frames import Raw
    from ...kernel.wire.loop import Loop
    from ...kernel.wire.messages import VisibleGpus

# --- GPUs: their models and driver, and what of their memory is free ---
# The kernel tells of the first two in files; of NVIDIA's memory only `nvidia-smi` knows, which
# takes seconds where the driver has no persistence mode, and fails as a whole where a GPU is lost.

_QUERY = "index,uuid,name,driver_version,memory.free,memory.total"
_FIELDS = len(_QUERY.split(","))
_GPU_LISTING_S = 8.0
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


def begin_gpu_listing() -> subprocess.Popen[bytes] | None:
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
        out, _ = listing.communicate(timeout=_GPU_LISTING_S)
    except subprocess.TimeoutExpired:
        listing.kill()
        try:  # one that waits for a driver cannot even be killed
            listing.communicate(timeout=_KILLED_S)
        except subprocess.TimeoutExpired:
            pass
        return ""
    return out.decode("utf-8", "replace") if listing.returncode == 0 else ""


def look_at_gpus(
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
    if gpus.are_intel(visible):
        return (), ()
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


# --- what this host has to run on, for --check: whatever is missing, the rest is found out ---

_MOST_S = 8.0
_COUNTING_S = 40.0
_MOST_DIGITS = 9  # of an interface's speed or MTU
# Beside jax itself: what makes it use an accelerator, and joins those.
_ACCELERATORS = ("cuda12", "cuda13", "cuda14", "rocm60", "rocm7", "rocm10")
_PACKAGES = (
    *("jax", "jaxlib", "libtpu", "jax-metal"),
    *(f"jax-{name}-{part}" for name in _ACCELERATORS for part in ("plugin", "pjrt")),
    *("nvidia-nccl-cu12", "nvidia-nccl-cu13", "nvidia-nccl-cu14"),
)
# Run by a rank's Python; what it imports is found, not imported. A folder earlier on the path may
# hold other sources than those that the metadata speaks of.
_VERSIONS = f"""
import importlib.metadata, importlib.util, json, os, platform, re
found = {{}}
for name in {_PACKAGES!r}:
    module = name in ("jax", "jaxlib") and importlib.util.find_spec(name)
    if module is None:
        continue
    try:
        found[name] = importlib.metadata.version(name)
    except Exception:
        pass
    try:
        with open(os.path.join(os.path.dirname(module.origin), "version.py")) as file:
            stated = re.search(r"^_version = [\\"']([^\\"']+)", file.read(), re.MULTILINE)
        if stated and not found.get(name, "").startswith(stated[1]):
            found[name] = stated[1]
    except Exception:
        pass
    if module:
        found.setdefault(name, "of unknown version")
print("\\n" + json.dumps([platform.python_version(), found], separators=(",", ":")))
"""
_DEVICES = """
import json, jax
from collections import Counter
found = Counter((one.platform, one.device_kind) for one in jax.local_devices())
found = [[*kind, count] for kind, count in found.items()]
print("\\n" + json.dumps(found, separators=(",", ":")))
"""


def survey(asked: Survey, loop: Loop) -> tuple[Prepared, Surveyed]:
    """What the host has, and the ports that it holds for the others' attempts to connect.

    Args:
        asked: by the launcher.
        loop: calls when somebody tries a port.

    """
    wanted, refused = asked.wanted, []
    listing = begin_gpu_listing()  # beside all else: it may take seconds
    try:
        cwd = folder(wanted, "")
    except Unusable as error:
        refused.append(str(error))
        wanted = wanted.replaced(chdir_given=False)
        cwd = folder(wanted, "")
    prepared = _prepared(wanted.replaced(pythons=()), loop, refused)
    total, free = system.memory_kib()
    shm, shm_free = shared_memory_kib()
    python = _python(wanted, cwd, asked.python_env)
    environ = {name: os.environ[name] for name in os.environ if not name.startswith("JAX_")}
    kinds, gpu_memory = look_at_gpus(said_by(listing), environ)
    found = Surveyed(
        facts=prepared.facts,
        refused=tuple(refused),
        python=python,
        cores=system.usable_cores(),
        load=os.getloadavg()[0],
        memory_kib=total,
        free_kib=free,
        gpus=kinds,
        gpu_memory=gpu_memory,
        shm_kib=shm,
        shm_free_kib=shm_free,
        interfaces=interfaces_of(prepared.facts.addresses),
    )
    return prepared, found


def _prepared(wanted: Prepare, loop: Loop, refused: list[str]) -> Prepared:
    try:
        return Prepared(wanted, "", loop)
    except Unusable as error:  # the port that the user has chosen is taken
        refused.append(str(error))
        port = wanted.coordinator and Bind("", 0)
        return Prepared(wanted.replaced(coordinator=port, ranks=0), "", loop)


# --- the network ---


def interfaces_of(addresses: Sequence[str], root: str = "/") -> tuple[NetworkInterface, ...]:
    """The interface of each of these addresses that is one of an interface's.

    Args:
        addresses: of this host; behind NAT they are none of its own.
        root: of the file system.

    """
    if not LINUX:
        return ()
    names = {**_of_ipv6(root), **{address: name for name, address in addresses_of_interfaces()}}
    return tuple(_interface(one, names[one], root) for one in addresses if one in names)


def _of_ipv6(root: str) -> dict[str, str]:
    """The interface of each IPv6 address, in lines such as `fe80000... 02 40 20 80 eth0`."""
    names = {}
    for line in text_of(os.path.join(root, "proc/net/if_inet6")).splitlines():
        fields = line.split()
        try:
            names[socket.inet_ntop(socket.AF_INET6, bytes.fromhex(fields[0]))] = fields[-1]
        except (ValueError, IndexError, OSError):
            continue
    return names


def _interface(address: str, name: str, root: str) -> NetworkInterface:
    folder = os.path.join(root, "sys/class/net", name)
    mtu = _number(os.path.join(folder, "mtu"))
    speed = _number(os.path.join(folder, "speed")) if _is_real(folder) else 0
    return NetworkInterface(address, name, mtu, speed)


def _is_real(folder: str) -> bool:
    """Whether it is a card, or stands on one: a container's has a speed that means nothing."""
    try:
        return any(name == "device" or name.startswith("lower_") for name in os.listdir(folder))
    except OSError:
        return False


def _number(path: str) -> int:
    """What a file holds; 0 where that is nothing, or -1: not known."""
    text = text_of(path)
    return int(text) if text.isdecimal() and len(text) <= _MOST_DIGITS else 0


# --- the ranks' Python ---


def _python(wanted: Prepare, cwd: str, env: dict[str, str]) -> PythonFacts:
    """The first of those to choose from that has jax, else the first."""
    found = PythonFacts("", "", {}, no_python(wanted.pythons))
    for python in interpreter.find(wanted.pythons, os.environ.get("PATH", os.defpath)):
        facts = _versions(python, cwd, env)
        if not facts.error:
            return facts
        found = found if found.path else facts
    return found


def _versions(python: str, cwd: str, env: dict[str, str]) -> PythonFacts:
    try:
        found = _printed(python, _VERSIONS, cwd, env, _MOST_S)
        facts = from_values(PythonFacts, [python, *found, ""])
    except (_Failed, Malformed) as error:
        return PythonFacts(python, "", {}, f"does not run: {error}")
    return facts if "jax" in facts.packages else facts.replaced(error="has no jax")


def count_devices(asked: CountDevices) -> DevicesCounted:
    """The devices that JAX has here, in a process of its own that takes part in no job."""
    try:
        found = _printed(asked.python, _DEVICES, asked.cwd, asked.env, _COUNTING_S)
        return DevicesCounted(tuple(from_values(DeviceCount, one) for one in found), "")
    except (_Failed, Malformed) as error:
        return DevicesCounted((), str(error))


class _Failed(Exception):
    """A Python has not printed what it was asked for; the text says why."""


def _printed(python: str, code: str, cwd: str, env: dict[str, str], most_s: float) -> list[object]:
    """What a Python prints last, as JSON.

    Raises:
        _Failed: it does not.

    """
    environ = {**os.environ, **env}
    try:
        done = subprocess.run(
            [python, "-c", code],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            cwd=cwd,
            env=environ,
            timeout=most_s,
        )
    except subprocess.TimeoutExpired:
        raise _Failed(f"no answer within {most_s:g} s") from None
    except OSError as error:
        raise _Failed(f"{error.filename}: {error.strerror}") from None
    lines = done.stdout.decode("utf-8", "replace").strip().splitlines()
    try:
        found = from_json(lines[-1]) if lines else None
    except Malformed:
        found = None
    if done.returncode == 0 and isinstance(found, list):
        return found
    said = done.stderr.decode("utf-8", "replace").strip().splitlines()
    raise _Failed(said[-1] if said else f"exit status {done.returncode}")


# --- the part ---


class CheckPart(AgentPart):
    """Answers each as it comes."""

    def received(self, message: Message | Raw) -> None:
        """Answer a question."""
        agent = self.agent
        if isinstance(message, TellTime):
            agent.link.send(Time(time.time()))
            return
        if isinstance(message, CountDevices):
            agent.link.send(count_devices(message))
        elif isinstance(message, Survey):
            agent.prepared, found = survey(message, agent.loop)
            agent.link.send(found)


PART = CheckPart

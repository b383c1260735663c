"""What this host has to run on, for --check: whatever is missing, the rest is found out."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import time
from collections import Counter

from ...kernel.agent.network import addresses_of_interfaces
from ...kernel.agent.part import AgentPart
from ...kernel.agent.startup import Prepared, folder, no_python
from ...kernel.agent.system import system
from ...kernel.wire import gpus, interpreter
from ...kernel.wire.interpreter import Unusable
from ...kernel.wire.messages import Bind, Prepare
from ...kernel.wire.system import LINUX, text_of
from ...kernel.wire.value import Value
from .messages import (
    GpuFacts,
    GpuMemory,
    NetworkInterface,
    Probe,
    Probed,
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

# --- GPUs: their models and driver, and what of their memory is free ---
# The kernel tells of the first two in files; of NVIDIA's memory only `nvidia-smi` knows, which
# takes seconds where the driver has no persistence mode, and fails as a whole where a GPU is lost.

_QUERY = "index,uuid,name,driver_version,memory.free,memory.total"
_FIELDS = len(_QUERY.split(","))
_LISTING_S = 8.0
_LONGEST = 100  # of what a driver calls anything
_MODEL = re.compile(r"^Model:[ \t]*(\S.*)", re.MULTILINE)
_UUID = re.compile(r"^GPU UUID:[ \t]*(GPU-\S{1,100})", re.MULTILINE)
_DRIVER = re.compile(r"^NVRM version:.*?[ \t](\d{1,5}(?:\.\d{1,5}){1,2})\b", re.MULTILINE)
_NUMBER = re.compile(r"\d{1,12}")
_UNNAMED = "GPU"


class _Gpu(Value):
    """A GPU of this host; its memory, where that is known."""

    name: str
    driver: str
    uuid: str = ""
    memory: GpuMemory | None = None


def listed_gpus() -> str:
    """Return what `nvidia-smi` says; "" if there is none, or it fails."""
    words = ["nvidia-smi", f"--query-gpu={_QUERY}", "--format=csv,noheader,nounits"]
    try:
        status, out, _ = _printed(words, _LISTING_S)
    except _Failed:
        return ""
    return "" if status else out


def look_at_gpus(
    listed: str, environ: Mapping[str, str], root: str = "/"
) -> tuple[tuple[GpuFacts, ...], tuple[GpuMemory, ...]]:
    """Return the GPUs that a program started here would see, by kind, and the memory of each.

    Args:
        listed: what `nvidia-smi` says.
        environ: of the program.
        root: of the file system.

    """
    visible = gpus.visible(environ, root)
    if gpus.are_intel(visible):
        return (), ()
    there = _of_nvidia(listed, root) or _of_amd(root)
    driver = there[0].driver if there else ""
    found = _visible(there, environ)
    counts = Counter(gpu.name for gpu in found)
    name = next(iter(counts), _UNNAMED)
    if visible.mig:
        counts = Counter({f"MIG device of {name}": visible.count})
    elif visible.count != len(found) and (visible.counted or not found):
        counts = Counter({name: visible.count})
    kinds = tuple(GpuFacts(name, driver, count) for name, count in counts.items() if count)
    memory = tuple(gpu.memory for gpu in found if gpu.memory is not None)
    # Of a part of a GPU the memory is not known, nor which part of AMD's a variable leaves.
    whole = not visible.mig and len(found) == sum(counts.values())
    return kinds, memory if whole else ()


def _visible(found: list[_Gpu], environ: Mapping[str, str]) -> list[_Gpu]:
    """Return those that CUDA_VISIBLE_DEVICES leaves, by number or by the beginning of an id."""
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


def _of_nvidia(listed: str, root: str) -> list[_Gpu]:
    """Return the GPUs that the tool lists; those in the driver's files if these are others."""
    by_tool = []
    for line in listed.splitlines():
        fields = [field.strip()[:_LONGEST] for field in line.split(",", _FIELDS)]
        if len(fields) == _FIELDS and _NUMBER.fullmatch(fields[0]):
            number, uuid, name, version, free, total = fields
            by_tool.append(_Gpu(name, version, uuid, _memory(int(number), total, free, 1 << 20)))
    driver = _first(_DRIVER, text_of(os.path.join(root, "proc/driver/nvidia/version")))
    in_files = [
        _Gpu(_first(_MODEL, text) or _UNNAMED, driver, _first(_UUID, text))
        for text in (gpus.nvidia_information(root) or {}).values()
    ]
    return in_files if in_files and len(in_files) != len(by_tool) else by_tool


def _first(pattern: re.Pattern[str], text: str) -> str:
    found = pattern.search(text)
    return found[1].strip()[:_LONGEST] if found else ""


def _of_amd(root: str) -> list[_Gpu]:
    driver = text_of(os.path.join(root, "sys/module/amdgpu/version"))[:_LONGEST]
    found = []
    for number, gpu in enumerate(gpus.amd_gpus(root)):
        name = gpu.text("product_name")[:_LONGEST] or _architecture(gpu.version)
        total, used = (gpu.text(f"mem_info_vram_{which}") for which in ("total", "used"))
        memory = None
        if _NUMBER.fullmatch(total) and _NUMBER.fullmatch(used):
            memory = _memory(number, total, str(max(0, int(total) - int(used))), 1)
        found.append(_Gpu(name, driver, "", memory))
    return found


def _architecture(version: str) -> str:
    """`gfx942` for 90402."""
    if not _NUMBER.fullmatch(version) or int(version) == 0:
        return "AMD GPU"
    major, rest = divmod(int(version), 10_000)
    return f"AMD gfx{major}{rest // 100:x}{rest % 100:x}"


def _memory(number: int, total: str, free: str, unit: int) -> GpuMemory | None:
    """What is known of it; a GPU that shares the host's memory says `[N/A]`.

    Args:
        unit: of the two numbers, in bytes.

    """
    if not (_NUMBER.fullmatch(total) and _NUMBER.fullmatch(free)):
        return None
    all_kib = int(total) * unit >> 10
    return GpuMemory(number, all_kib, min(int(free) * unit >> 10, all_kib))


def shared_memory_kib(root: str = "/") -> tuple[int, int]:
    """The size of /dev/shm, where NCCL's processes meet, and what is free of it; 0: not known."""
    if not LINUX:
        return 0, 0
    try:
        found = os.statvfs(os.path.join(root, "dev/shm"))
    except OSError:
        return 0, 0
    return found.f_blocks * found.f_frsize >> 10, found.f_bavail * found.f_frsize >> 10


# --- what this host has to run on, for --check: whatever is missing, the rest is found out ---

_MOST_DIGITS = 9  # of an interface's speed or MTU


def survey(asked: Survey, loop: Loop) -> tuple[Prepared, Surveyed]:
    """What the host has, and the ports that it holds for the others' attempts to connect.

    Args:
        asked: by the launcher.
        loop: calls when somebody tries a port.

    """
    wanted, refused = asked.wanted, []
    try:
        folder(wanted, "")
    except Unusable as error:
        refused.append(str(error))
        wanted = wanted.replaced(chdir_given=False)
    prepared = _prepared(wanted.replaced(pythons=()), loop, refused)
    total, free = system.memory_kib()
    shm, shm_free = shared_memory_kib()
    environ = {name: os.environ[name] for name in os.environ if not name.startswith("JAX_")}
    kinds, gpu_memory = look_at_gpus(listed_gpus(), environ)
    found = Surveyed(
        facts=prepared.facts,
        refused=tuple(refused),
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

_MOST_PRINTED = 1 << 16


def probe(asked: Probe) -> Probed:
    """Run the probe in the first Python that has jax, as for a job, else in the first of all."""
    environ = {**os.environ, **asked.env}
    pythons = interpreter.find(asked.pythons, os.environ.get("PATH", os.defpath))
    if not pythons:
        return Probed("", "", no_python(asked.pythons))
    python = pythons[0]
    if len(pythons) > 1:
        python = next((one for one in pythons if _has_jax(one, asked.cwd, environ)), python)
    words = [python, "-c", asked.program, asked.word]
    try:
        status, out, err = _printed(words, asked.most_s, cwd=asked.cwd, env=environ)
    except _Failed as error:
        return Probed(python, "", str(error))
    why = "" if status == 0 else (err.strip().splitlines() or [f"exit status {status}"])[-1]
    return Probed(python, out[-_MOST_PRINTED:], why)


def _has_jax(python: str, cwd: str, environ: Mapping[str, str]) -> bool:
    try:
        return interpreter.has_jax(python, cwd, environ)
    except OSError:
        return False


# --- programs of others ---

_KILLED_S = 1.0


class _Failed(Exception):
    """A program has not run to its end; the text says why."""


def _printed(
    words: Sequence[str], most_s: float, cwd: str | None = None, env: dict[str, str] | None = None
) -> tuple[int, str, str]:
    """Run a program; return its exit status, and what it has printed to stdout and stderr.

    Raises:
        _Failed: it cannot be run, or does not end in time.

    """
    pipe = subprocess.PIPE
    try:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, cwd=cwd, env=env
        )
    except OSError as error:
        raise _Failed(f"{error.filename}: {error.strerror}") from None
    try:
        out, err = process.communicate(timeout=most_s)
    except subprocess.TimeoutExpired:
        process.kill()
        try:  # one that waits for a driver cannot even be killed
            process.communicate(timeout=_KILLED_S)
        except subprocess.TimeoutExpired:
            pass
        raise _Failed(f"no answer within {most_s:g} s") from None
    return process.returncode, out.decode("utf-8", "replace"), err.decode("utf-8", "replace")


# --- the part ---


class CheckPart(AgentPart):
    """Answers each as it comes."""

    def received(self, message: Message | Raw) -> None:
        """Answer a question."""
        agent = self.agent
        if isinstance(message, TellTime):
            agent.link.send(Time(time.time()))
            return
        if isinstance(message, Probe):
            agent.link.send(probe(message))
        elif isinstance(message, Survey):
            agent.prepared, found = survey(message, agent.loop)
            agent.link.send(found)


PART = CheckPart

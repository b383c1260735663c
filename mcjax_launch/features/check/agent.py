"""Survey of this host for --check: GPUs, memory, network and Python; missing parts are reported."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import time
from collections import Counter

from ...kernel.agent.network import list_interface_addresses
from ...kernel.agent.part import AgentPart
from ...kernel.agent.startup import HostPreparation, explain_missing_python
from ...kernel.agent.system import system
from ...kernel.wire import gpus, interpreter
from ...kernel.wire.interpreter import Unusable
from ...kernel.wire.messages import Bind
from ...kernel.wire.system import LINUX, read_system_text
from ...kernel.wire.value import Value
from .messages import (
    GpuFacts,
    GpuMemory,
    NetworkInterface,
    Probe,
    Probed,
    ReadClock,
    Survey,
    Surveyed,
    Time,
)

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ...kernel.wire.codec import Message
    from ...kernel.wire.frames import Raw
    from ...kernel.wire.loop import Loop

# --- GPUs: their models, driver and free memory ---
# Models and driver are in files of the kernel. Only `nvidia-smi` knows NVIDIA's free memory, but
# it takes seconds without persistence mode, and fails altogether if a GPU is lost.

_QUERY = "index,uuid,name,driver_version,memory.free,memory.total"
_FIELDS = len(_QUERY.split(","))
_LISTING_S = 8.0
_DRIVER = re.compile(r"^NVRM version:.*?[ \t](\d{1,5}(?:\.\d{1,5}){1,2})\b", re.MULTILINE)
_NUMBER = re.compile(r"\d{1,12}")
_UNNAMED = "GPU"


class _Gpu(Value):
    """GPU of this host, with its memory if known."""

    name: str
    driver: str
    uuid: str = ""
    memory: GpuMemory | None = None


def survey_gpus(
    listed: str, environ: Mapping[str, str], root: str = "/"
) -> tuple[tuple[GpuFacts, ...], tuple[GpuMemory, ...]]:
    """Return the GPUs that a program started here would see, by kind, and the memory of each.

    Args:
        listed: the output of `nvidia-smi`.
        environ: the program's variables.
        root: root of the file system to look in.

    """
    visible = gpus.find_visible_gpus(environ, root)
    if gpus.are_intel(visible):
        return (), ()
    there = _find_nvidia_gpus(listed, root) or _find_amd_gpus(root)
    driver = there[0].driver if there else ""
    found = [
        there[number] for number in gpus.select_cuda_indices(environ, [gpu.uuid for gpu in there])
    ]
    counts = Counter(gpu.name for gpu in found)
    name = next(iter(counts), _UNNAMED)
    if visible.mig:
        counts = Counter({f"MIG device of {name}": visible.count})
    elif visible.count != len(found) and (visible.counted or not found):
        counts = Counter({name: visible.count})
    kinds = tuple(GpuFacts(name, driver, count) for name, count in counts.items() if count)
    memory = tuple(gpu.memory for gpu in found if gpu.memory is not None)
    # The memory of a part of a GPU is unknown, and so are the AMD GPUs that a variable selects.
    whole = not visible.mig and len(found) == sum(counts.values())
    return kinds, memory if whole else ()


def _find_nvidia_gpus(listed: str, root: str) -> list[_Gpu]:
    """Return the GPUs that nvidia-smi lists; if the driver's files list more or fewer, those."""
    by_tool = []
    for line in listed.splitlines():
        fields = [field.strip() for field in line.split(",", _FIELDS)]
        if len(fields) == _FIELDS and _NUMBER.fullmatch(fields[0]):
            number, uuid, name, version, free, total = fields
            by_tool.append(
                _Gpu(name, version, uuid, _parse_memory(int(number), total, free, 1 << 20))
            )
    stated = _DRIVER.search(read_system_text(os.path.join(root, "proc/driver/nvidia/version")))
    in_files = [
        _Gpu(gpu.model or _UNNAMED, stated[1] if stated else "", gpu.uuid)
        for gpu in gpus.read_nvidia_gpus(root) or ()
    ]
    return in_files if in_files and len(in_files) != len(by_tool) else by_tool


def _find_amd_gpus(root: str) -> list[_Gpu]:
    driver = read_system_text(os.path.join(root, "sys/module/amdgpu/version"))
    found = []
    for number, gpu in enumerate(gpus.read_amd_gpus(root)):
        total, used = (
            read_system_text(os.path.join(root, gpus.PCI, gpu.bus, f"mem_info_vram_{which}"))
            for which in ("total", "used")
        )
        memory = None
        if _NUMBER.fullmatch(total) and _NUMBER.fullmatch(used):
            memory = _parse_memory(number, total, str(max(0, int(total) - int(used))), 1)
        found.append(_Gpu(gpu.model, driver, "", memory))
    return found


def _parse_memory(number: int, total: str, free: str, unit: int) -> GpuMemory | None:
    """Return a GPU's memory; None if unknown: nvidia-smi prints `[N/A]` if the host's is shared.

    Args:
        number: the GPU's number.
        total, free: its memory, as text.
        unit: the unit of both, in bytes.

    """
    if not (_NUMBER.fullmatch(total) and _NUMBER.fullmatch(free)):
        return None
    all_kib = int(total) * unit >> 10
    return GpuMemory(number, all_kib, min(int(free) * unit >> 10, all_kib))


def read_shared_memory_kib(root: str = "/") -> tuple[int, int]:
    """Return the size of /dev/shm, which NCCL uses, and its free part in KiB; 0 if unknown."""
    if not LINUX:
        return 0, 0
    try:
        found = os.statvfs(os.path.join(root, "dev/shm"))
    except OSError:
        return 0, 0
    return found.f_blocks * found.f_frsize >> 10, found.f_bavail * found.f_frsize >> 10


# --- the survey: missing parts do not end it ---

_MOST_DIGITS = 9  # digits of an interface's speed or MTU


def survey(asked: Survey, loop: Loop) -> tuple[HostPreparation, Surveyed]:
    """Return what the host has, and the ports reserved for test connections from the other hosts.

    Args:
        asked: the launcher's question.
        loop: reports connections to the ports.

    """
    refused = ""
    wanted = asked.wanted.copy_with(pythons=())  # the probe checks Python
    try:
        prepared = HostPreparation(wanted, "", loop)
    except Unusable as error:  # no such directory, or the user's port is in use
        refused = str(error)
        port = wanted.coordinator and Bind("", 0)
        prepared = HostPreparation(
            wanted.copy_with(chdir_given=False, coordinator=port, ranks=0), "", loop
        )
    total, free = system.read_memory_kib()
    shm, shm_free = read_shared_memory_kib()
    environ = {name: os.environ[name] for name in os.environ if not name.startswith("JAX_")}
    options = f"--query-gpu={_QUERY}", "--format=csv,noheader,nounits"
    kinds, gpu_memory = survey_gpus(gpus.run_nvidia_smi(_LISTING_S, *options), environ)
    found = Surveyed(
        facts=prepared.facts,
        refused=refused,
        cores=system.count_usable_cores(),
        load=os.getloadavg()[0],
        memory_kib=total,
        free_kib=free,
        gpus=kinds,
        gpu_memory=gpu_memory,
        shm_kib=shm,
        shm_free_kib=shm_free,
        interfaces=find_interfaces(prepared.facts.addresses),
    )
    return prepared, found


# --- the network ---


def find_interfaces(addresses: Sequence[str], root: str = "/") -> tuple[NetworkInterface, ...]:
    """Return the interface of each address that belongs to an interface of this host.

    Args:
        addresses: of this host; behind NAT they belong to no interface here.
        root: root of the file system to look in.

    """
    if not LINUX:
        return ()
    names = {
        **_read_ipv6_interfaces(root),
        **{address: name for name, address in list_interface_addresses()},
    }
    return tuple(_read_interface(ip, names[ip], root) for ip in addresses if ip in names)


def _read_ipv6_interfaces(root: str) -> dict[str, str]:
    """Map each IPv6 address to its interface, from lines such as `fe80000... 02 40 20 80 eth0`."""
    names = {}
    for line in read_system_text(os.path.join(root, "proc/net/if_inet6")).splitlines():
        fields = line.split()
        try:
            names[socket.inet_ntop(socket.AF_INET6, bytes.fromhex(fields[0]))] = fields[-1]
        except (ValueError, IndexError, OSError):
            continue
    return names


def _read_interface(address: str, name: str, root: str) -> NetworkInterface:
    folder = os.path.join(root, "sys/class/net", name)
    mtu = _read_number(os.path.join(folder, "mtu"))
    speed = _read_number(os.path.join(folder, "speed")) if _is_real(folder) else 0
    return NetworkInterface(address, name, mtu, speed)


def _is_real(folder: str) -> bool:
    """Return whether an interface is a card, or based on one; else its speed means nothing."""
    try:
        return any(name == "device" or name.startswith("lower_") for name in os.listdir(folder))
    except OSError:
        return False


def _read_number(path: str) -> int:
    """Return the number in a file; 0 if the file has none, a negative one, or over 9 digits."""
    text = read_system_text(path)
    return int(text) if text.isdecimal() and len(text) <= _MOST_DIGITS else 0


# --- the ranks' Python ---

_MOST_PRINTED = 1 << 16


def probe(asked: Probe) -> Probed:
    """Run the probe in the first Python that has jax, as a job would, else in the first of all."""
    environ = {**os.environ, **asked.env}
    pythons = interpreter.find(asked.pythons, os.environ.get("PATH", os.defpath))
    if not pythons:
        return Probed("", "", explain_missing_python(asked.pythons))
    python = pythons[0]
    if len(pythons) > 1:
        python = next((found for found in pythons if _has_jax(found, asked.cwd, environ)), python)
    words = [python, "-c", asked.program, asked.word]
    try:
        done = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            cwd=asked.cwd,
            env=environ,
            timeout=asked.most_s,
        )
    except subprocess.TimeoutExpired:
        return Probed(python, "", f"no answer within {asked.most_s:g} s")
    except OSError as error:
        return Probed(python, "", f"{error.filename}: {error.strerror}")
    printed, said = (text.decode("utf-8", "replace").strip() for text in (done.stdout, done.stderr))
    why = (said.splitlines() or [f"exit status {done.returncode}"])[-1]
    return Probed(python, printed[-_MOST_PRINTED:], why if done.returncode else "")


def _has_jax(python: str, cwd: str, environ: Mapping[str, str]) -> bool:
    try:
        return interpreter.has_jax(python, cwd, environ)
    except OSError:
        return False


# --- the part ---


class CheckPart(AgentPart):
    """Part that answers the questions of --check as they come."""

    def on_message(self, message: Message | Raw) -> None:
        """Answer a question of --check from the launcher."""
        agent = self.agent
        if isinstance(message, ReadClock):
            agent.link.send(Time(time.time()))
            return
        if isinstance(message, Probe):
            agent.link.send(probe(message))
        elif isinstance(message, Survey):
            agent.prepared, found = survey(message, agent.loop)
            agent.link.send(found)


PART = CheckPart

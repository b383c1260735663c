"""What this host has to run on, for --check: whatever is missing, the rest is found out."""

from __future__ import annotations

import os
import socket
import subprocess

from ....kernel.agent.network import addresses_of_interfaces
from ....kernel.agent.startup import Prepared, folder, no_python
from ....kernel.agent.system import system
from ....kernel.wire import interpreter
from ....kernel.wire.codec import Malformed, from_json, from_values
from ....kernel.wire.messages import Bind, Prepare
from ....kernel.wire.program_check import Unusable
from ....kernel.wire.system import LINUX, text_of
from ..messages import (
    CountDevices,
    DeviceCount,
    DevicesCounted,
    NetworkInterface,
    PythonFacts,
    Survey,
    Surveyed,
)
from . import gpu_survey

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from collections.abc import Sequence

    from ....kernel.wire.loop import Loop

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
    listing = gpu_survey.begin()  # beside all else: it may take seconds
    try:
        cwd = folder(wanted, "")
    except Unusable as error:
        refused.append(str(error))
        wanted = wanted.replaced(chdir_given=False)
        cwd = folder(wanted, "")
    prepared = _prepared(wanted.replaced(pythons=()), loop, refused)
    total, free = system.memory_kib()
    shm, shm_free = gpu_survey.shared_memory_kib()
    python = _python(wanted, cwd, asked.python_env)
    environ = {name: os.environ[name] for name in os.environ if not name.startswith("JAX_")}
    kinds, gpu_memory = gpu_survey.look(gpu_survey.said_by(listing), environ)
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

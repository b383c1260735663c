"""What is here: a Python for the launcher, a driver, and a jax that sees GPUs.

Each question is asked of a process of its own that has a time limit, and each thing that is missing
is one line, which ends with what to do.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from gpu_check.limited import Answer, ask

ROOT = Path(__file__).resolve().parents[2]
VENV = ROOT / ".venv" / "bin" / "python"
# To start Python, from a cold file system; to ask the driver, which without persistence mode starts
# each GPU; and to start JAX on GPUs.
PYTHON_S, DRIVER_S, JAX_S = 30.0, 60.0, 180.0
NEEDS = (3, 11)
_LAUNCHER = """
import sys
print("python", *sys.version_info[:3])
for name in ["click", *([] if sys.platform == "linux" else ["psutil"])]:
    try:
        __import__(name)
    except ImportError as error:
        print("lacks", name)
"""
# What it finds comes last, for a plugin may print too.
_JAX = """
import importlib.metadata, json, sys
import jax, jaxlib
devices = jax.local_devices()
found = {d.metadata["Name"] or "": d.version for d in importlib.metadata.distributions()}
plugins = {n: v for n, v in found.items() if n.startswith("jax") and ("plugin" in n or "pjrt" in n)}
print(json.dumps({
    "platform": devices[0].platform,
    "kinds": [d.device_kind for d in devices],
    "jax": jax.__version__,
    "jaxlib": jaxlib.__version__,
    "plugins": plugins,
    "python": sys.version.split()[0],
}))
"""
_QUERY = "--query-gpu=name,driver_version,memory.total,memory.used"


class Missing(Exception):
    """What is not here, and what to do about it: one line."""


def launcher_python(
    candidates: Iterable[Path | str] = (VENV, sys.executable), limit_s: float = PYTHON_S
) -> str:
    """Return the first Python that can run the launcher.

    Raises:
        Missing: there is none.

    """
    reasons = []
    for python in dict.fromkeys(map(str, candidates)):
        why = _why_unfit(python, limit_s)
        if not why:
            return python
        reasons.append(f"{short(python)} {why}")
    raise Missing(
        f"no Python here can run the launcher: {'; '.join(reasons)}. Type scripts/install jax, "
        "which makes .venv (it needs a Python from 3.11 on, and a package index)"
    )


def _why_unfit(python: str, limit_s: float) -> str:
    if not os.path.exists(python):
        return "is not there"
    answer = ask([python, "-c", _LAUNCHER], limit_s)
    lines = [line.split() for line in answer.out.splitlines()]
    if answer.status is None:
        return _slow(limit_s)
    if answer.status != 0 or not lines or lines[0][:1] != ["python"]:
        return f"does not run: {answer.said}"
    version = tuple(map(int, lines[0][1:3]))
    if version < NEEDS:
        return f"is Python {version[0]}.{version[1]}, the launcher needs 3.11 or newer"
    lacks = [words[1] for words in lines[1:] if words[0] == "lacks"]
    return f"has no {', no '.join(lacks)}" if lacks else ""


def launcher_version(python: str) -> str:
    """Return the launcher's version.

    Raises:
        Missing: the launcher does not run.

    """
    environ = {**os.environ, "PYTHONPATH": with_root()}
    answer = ask([python, "-m", "mcjax_launch", "--version"], PYTHON_S, environ)
    if answer.status != 0:
        said = _slow(PYTHON_S) if answer.status is None else answer.said
        raise Missing(f"{short(python)} -m mcjax_launch --version fails: {said}")
    return answer.out.split()[-1]


def with_root() -> str:
    """PYTHONPATH, with this checkout in front: its launcher is what is checked."""
    return os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))


@dataclass(frozen=True)
class Card:
    """A GPU, as its driver describes it."""

    name: str
    driver: str
    memory_mib: int
    used_mib: int


@dataclass(frozen=True)
class Driver:
    """What nvidia-smi says.

    Attributes:
        cards: all of them, whatever CUDA_VISIBLE_DEVICES says.
        why_none: where it lists none.

    """

    cards: tuple[Card, ...] = ()
    why_none: str = ""

    @property
    def version(self) -> str:
        return self.cards[0].driver if self.cards else ""


def driver(limit_s: float = DRIVER_S) -> Driver:
    """Ask nvidia-smi."""
    answer = ask(["nvidia-smi", _QUERY, "--format=csv,noheader,nounits"], limit_s)
    if answer.status is None:
        return Driver(why_none=f"nvidia-smi {_slow(limit_s)}: does the driver hang (dmesg)?")
    cards = tuple(filter(None, map(_card, answer.out.splitlines())))
    return Driver(cards) if cards else Driver(why_none=_why_no_card(answer))


def _card(line: str) -> Card | None:
    words = [word.strip() for word in line.split(",")]
    if len(words) != 4:
        return None
    name, version, total, used = words
    return Card(name, version, _mib(total), _mib(used))


def _mib(word: str) -> int:
    return (
        int(word) if word.isdigit() else 0
    )  # a card that shares its memory with the host's: [N/A]


def _why_no_card(answer: Answer) -> str:
    if answer.status != 127:
        return f"nvidia-smi lists no GPU: {answer.said}"
    if os.path.exists("/proc/driver/nvidia/version"):
        return "nvidia-smi is not there, but NVIDIA's driver is"
    if os.path.exists("/sys/class/kfd"):
        return "nvidia-smi is not there, but AMD's driver is"
    return "there is no NVIDIA driver (a container needs docker run --gpus all)"


@dataclass(frozen=True)
class Jax:
    """What the ranks' Python has.

    Attributes:
        kinds: of its local devices, one for each.
        plugins: versions, by name.

    """

    platform: str
    kinds: tuple[str, ...]
    jax: str
    jaxlib: str
    plugins: Mapping[str, str]
    python: str


def jax_of(python: str, environ: Mapping[str, str], limit_s: float = JAX_S) -> Jax:
    """Ask a Python what its jax sees; it takes no memory of a GPU for that.

    Raises:
        Missing: it has no jax, or one that does not start.

    """
    runs = ask([python, "-c", "print(1)"], min(limit_s, PYTHON_S))
    if runs.out != "1\n":
        why = _slow(min(limit_s, PYTHON_S)) if runs.status is None else f"does not run: {runs.said}"
        raise Missing(f"{short(python)} {why}. Name the ranks' Python with --python PATH")
    environ = {**environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    answer = ask([python, "-c", _JAX], limit_s, environ)
    if answer.status is None:
        raise Missing(
            f"{short(python)}: jax {_slow(limit_s)}: does the driver hang (dmesg), or has another "
            "job the GPUs to itself (nvidia-smi)?"
        )
    if "No module named 'jax'" in answer.errors:
        raise Missing(
            f"{short(python)} has no jax: type {python} -m pip install 'jax[cuda12]', or name a "
            "Python that has one with --python PATH"
        )
    if answer.status != 0:
        raise Missing(f"{short(python)} has no jax that works: {answer.said[-300:]}")
    found = json.loads(answer.out.splitlines()[-1])
    return Jax(**{**found, "kinds": tuple(found["kinds"])})


def no_gpu(python: str, jax: Jax, driver: Driver) -> Missing:
    """Why jax sees no GPU."""
    sees = f"jax {jax.jax} of {short(python)} sees no GPU (only {jax.platform})"
    if driver.why_none:
        return Missing(f"{sees}: {driver.why_none}. scripts/gpu-check --cpu rehearses without one")
    if not jax.plugins:
        return Missing(
            f"{sees}, since it has no plugin for one: type {python} -m pip install 'jax[cuda12]' "
            "(jax[cuda13] for a driver from 580 on), or name another Python with --python PATH"
        )
    for name in ("JAX_PLATFORMS", "CUDA_VISIBLE_DEVICES"):
        if name in os.environ:
            return Missing(f"{sees}, where {name} is {os.environ[name]!r}: unset it")
    return Missing(f"{sees}: type JAX_PLATFORMS=cuda {python} -c 'import jax; jax.devices()'")


def _slow(limit_s: float) -> str:
    return f"did not answer within {limit_s:.0f} s"


def short(python: str) -> str:
    """Its path, from here if that is shorter."""
    inside = python.startswith(f"{ROOT}{os.sep}")
    return os.path.relpath(python, ROOT) if inside else python

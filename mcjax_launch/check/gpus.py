"""What a host with GPUs needs before its first job: driver, plugin, NCCL, free memory; pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from mcjax_launch.check.found import Found, HostFound
from mcjax_launch.check.step import Step, by_text, unlike
from mcjax_launch.protocol.messages import GpuFacts, GpuMemory
from mcjax_launch.ranks import counted, ranges

_GIB = 1 << 20  # in KiB
# A GPU with less of its memory free is another program's.
_MOSTLY = 0.5
# One with less than this in all is there for a laptop's screen: nobody misses it.
_LEAST_KIB = 4 << 20
# NCCL takes some 10 MB of /dev/shm for each pair of GPUs that it joins there; Docker gives 64 MB.
_LEAST_SHM_KIB = 1 << 20
# By JAX's instructions for its installation: the least major version of the driver.
_DRIVERS = {"cuda12": 525, "cuda13": 580}
_PLUGIN = re.compile(r"jax-((?:cuda|rocm)\d{1,4})-(?:plugin|pjrt)")
_NUMBERS = re.compile(r"\d{1,9}(?:\.\d{1,9}){0,9}")
_NVIDIA, _AMD = "cuda", "rocm"


def gpu_steps(found: Found) -> Iterator[Step]:
    """All that is to be said of GPUs; nothing where there are none, or the user wants none."""
    hosts = [host for host in found.hosts if host.surveyed is not None]
    if found.on_cpu:
        return
    if any(host.gpus for host in hosts):
        yield _gpus(hosts)
    yield from _shares(hosts)
    yield from _shared_memory([host for host in hosts if host.gpus > 1])


def gpus_text(host: HostFound) -> str:
    """A host's GPUs with their driver; "" if it has none."""
    gpus: tuple[GpuFacts, ...] = host.surveyed.gpus if host.surveyed is not None else ()
    texts = (f"{one.count} {one.name}{one.driver and f', driver {one.driver}'}" for one in gpus)
    return "; ".join(texts)


def unfit_plugins(host: HostFound) -> str:
    """The plugins of jax that its jaxlib does not use; "" where all fit."""
    jaxlib = host.version("jaxlib")
    packages = host.python.packages if host.python is not None else {}
    unfit = [
        f"{name} {version}"
        for name, version in sorted(packages.items())
        if _plugin_for(name).startswith(_NVIDIA) and not _fits(version, jaxlib)
    ]
    if not unfit:
        return ""
    cure = f'{_pip(host)} "jax[{_cuda(host)}]=={host.version("jax")}"'
    fit, them = ("does not fit", "it") if len(unfit) == 1 else ("do not fit", "them")
    return f"{', '.join(unfit)} {fit} jaxlib {jaxlib}, which will not use {them}: {cure}"


def _fits(version: str, jaxlib: str) -> bool:
    """By the rule of jaxlib's plugin_support: the numbers are the same. ROCm's have their own."""
    parsed = [
        [int(part) for part in numbers[0].split(".")]
        for text in (version, jaxlib)
        if (numbers := _NUMBERS.match(text))
    ]
    return len(parsed) < 2 or parsed[0] == parsed[1]


# --- the GPUs ---


def _gpus(hosts: Sequence[HostFound]) -> Step:
    for_jax = [host for host in hosts if host.gpus and not _are_small(host)]
    details = [
        *unlike(hosts, lambda host: gpus_text(host) or "no GPU"),
        *_said(for_jax, _why_unused),
        *_said(for_jax, _old_driver),
        *_said(for_jax, _taken),
    ]
    return Step(
        name="gpus",
        verdict="warning" if details else "ok",
        text="; ".join([_in_all(hosts), *_free(hosts)]),
        details=tuple(details),
    )


def _said(hosts: Sequence[HostFound], text: Callable[[HostFound], str]) -> Iterator[str]:
    """Lines for those hosts of which there is something to be said."""
    return by_text([host for host in hosts if text(host)], text)


def _in_all(hosts: Sequence[HostFound]) -> str:
    counts: Counter[tuple[str, str]] = Counter()
    for host in hosts:
        for one in host.surveyed.gpus if host.surveyed is not None else ():
            counts[one.name, one.driver] += one.count
    texts = (
        f"{count} {name}{driver and f', driver {driver}'}"
        for (name, driver), count in counts.items()
    )
    return "; ".join(texts)


def _free(hosts: Sequence[HostFound]) -> Iterator[str]:
    """What is free of each GPU's memory, where that is known."""
    memory = [one for host in hosts for one in _memory(host)]
    if memory:
        sizes = _gib(one.memory_kib for one in memory)
        yield f"{_gib(one.free_kib for one in memory)} of {sizes} GiB free on each"


def _memory(host: HostFound) -> tuple[GpuMemory, ...]:
    return host.surveyed.gpu_memory if host.surveyed is not None else ()


def _are_small(host: HostFound) -> bool:
    memory = _memory(host)
    return bool(memory) and all(one.memory_kib < _LEAST_KIB for one in memory)


def _gib(sizes_kib: Iterable[int]) -> str:
    texts = [f"{size / _GIB:.1f}" for size in sorted(sizes_kib)]
    return texts[0] if texts[0] == texts[-1] else f"{texts[0]}-{texts[-1]}"


def _why_unused(host: HostFound) -> str:
    """Why JAX uses none of a host's GPUs; "" if it may."""
    if host.python is None or host.python.error:  # which is said elsewhere
        return ""
    platforms = {one.platform for one in host.devices}
    if platforms - {"cpu"}:
        return ""
    gpus = counted(host.gpus, "GPU")
    if host.surveyed is not None and host.surveyed.facts.platforms == "cpu":
        return f"{gpus}, and JAX uses the CPU: JAX_PLATFORMS=cpu is set there"
    if not any(map(_plugin_for, host.python.packages)):
        cure = f'{_pip(host)} "jax[{_extra(host)}]"'
        return f"{gpus}, but no plugin for jax, so it uses the CPU: {cure}"
    if not platforms:
        return ""
    why = f"{host.python.path} -c 'import jax; jax.devices(\"gpu\")'"
    return f"{gpus}, and JAX uses the CPU: `{why}` says why"


def _plugin_for(package: str) -> str:
    """`cuda12` for jax-cuda12-plugin; "" for another package."""
    found = _PLUGIN.fullmatch(package)
    return found[1] if found else ""


def _extra(host: HostFound) -> str:
    """What to ask of jax so that it uses the GPUs of a host."""
    drivers = host.surveyed.gpus if host.surveyed is not None else ()
    amd = any("AMD" in one.name or "Radeon" in one.name for one in drivers)
    return "rocm7-local" if amd else _cuda(host)


def _cuda(host: HostFound) -> str:
    """The version of CUDA that is there; where there is none, one that runs with most drivers."""
    packages = host.python.packages if host.python is not None else {}
    found = sorted(kind for name in packages if (kind := _plugin_for(name)).startswith(_NVIDIA))
    return found[-1] if found else "cuda12"


def _pip(host: HostFound) -> str:
    return f"{host.python.path} -m pip install" if host.python is not None else "pip install"


def _old_driver(host: HostFound) -> str:
    """A driver that the CUDA of the plugin may not run with."""
    packages = host.python.packages if host.python is not None else {}
    kinds = {_plugin_for(name) for name in packages}
    least = max((_DRIVERS[kind] for kind in kinds if kind in _DRIVERS), default=0)
    for one in host.surveyed.gpus if host.surveyed is not None else ():
        major = one.driver.partition(".")[0]
        if major.isdecimal() and int(major) < least:
            kind = next(kind for kind, needs in _DRIVERS.items() if needs == least)
            return (
                f"driver {one.driver} is older than {least}, which jax[{kind}] needs, unless "
                "CUDA's packages for forward compatibility are there"
            )
    return ""


def _taken(host: HostFound) -> str:
    """GPUs whose memory is mostly another program's."""
    taken = [one for one in _memory(host) if one.free_kib < one.memory_kib * _MOSTLY]
    if not taken:
        return ""
    held = _gib(one.memory_kib - one.free_kib for one in taken)
    which = f"{'GPU' if len(taken) == 1 else 'GPUs'} {ranges(one.number for one in taken)}"
    who = "another program holds" if len(taken) == 1 else "other programs hold"
    sizes = _gib(one.memory_kib for one in taken)
    return f"{who} {held} of {sizes} GiB of {which}; JAX takes 75% of a GPU at its start"


# --- what the ranks of a host share ---


def _shares(hosts: Sequence[HostFound]) -> Iterator[Step]:
    """How the GPUs of each host would be shared out."""
    decided = [host for host in hosts if host.share.words and _concerned(host)]
    if not decided:
        return
    words = dict.fromkeys(host.share.words for host in decided)
    everywhere = len(words) == 1 and len(decided) == len(hosts)
    uneven = tuple(_said(decided, lambda host: host.share.uneven))
    yield Step(
        name="shares",
        verdict="warning" if uneven else "ok",
        text=next(iter(words))
        if everywhere
        else "; ".join(by_text(decided, lambda host: host.share.words)),
        details=uneven,
    )


def _concerned(host: HostFound) -> bool:
    """Whether there are GPUs, or a variable that leaves none of them."""
    return bool(host.gpus) or "_VISIBLE_DEVICES=" in host.share.words


def _shared_memory(hosts: Sequence[HostFound]) -> Iterator[Step]:
    """The /dev/shm of hosts with several GPUs."""
    known = [host.surveyed for host in hosts if host.surveyed is not None and host.surveyed.shm_kib]
    if not known:
        return
    details = tuple(_said(hosts, _little_shared_memory))
    free = _gib(one.shm_free_kib for one in known)
    yield Step(
        name="shm",
        verdict="warning" if details else "ok",
        text="too little of /dev/shm for NCCL" if details else f"{free} GiB of /dev/shm free",
        details=details,
    )


def _little_shared_memory(host: HostFound) -> str:
    found = host.surveyed
    if found is None or not found.shm_kib or found.shm_free_kib >= _LEAST_SHM_KIB:
        return ""
    if found.shm_kib >= _LEAST_SHM_KIB:
        return f"{found.shm_free_kib >> 10} MiB of /dev/shm free: see what `ls -l /dev/shm` lists"
    return (
        f"{found.shm_kib >> 10} MiB of /dev/shm: in Docker use --shm-size=8g or --ipc=host, in "
        "Kubernetes an emptyDir with `medium: Memory` there"
    )

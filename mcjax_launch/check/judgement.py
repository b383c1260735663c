"""What of the things found is right, what may be wrong and what is; pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from mcjax_launch.check.found import Found, GlobalSum, HostFound, Network
from mcjax_launch.check.gpus import gpu_steps, unfit_plugins
from mcjax_launch.check.names import some
from mcjax_launch.check.step import Step, Verdict, by_text, common, unlike
from mcjax_launch.launcher.peers import Gap
from mcjax_launch.launcher.tpu_workers import part_note
from mcjax_launch.protocol.jax_version import why_too_old
from mcjax_launch.protocol.messages import Devices
from mcjax_launch.ranks import counted, slices_text

# Clocks farther apart than this make files and logs of several hosts misleading.
CLOCK_S = 1.0
# A host whose cores are used to this part by others makes the whole job wait.
_BUSY = 0.5
_NCCL = "nvidia-nccl-"
_DIFFERENT = (
    "install the same version everywhere: ranks with different ones may wait in vain for 300 s"
)


def passed(steps: Sequence[Step]) -> bool:
    """Whether a job would run here."""
    return all(step.verdict in ("ok", "warning") for step in steps)


def judge(found: Found) -> tuple[Step, ...]:
    """All parts of a check, in their order."""
    hosts, seconds = found.hosts, found.seconds
    answered = [host for host in hosts if host.surveyed is not None]
    parts = [
        _reached(hosts, seconds),
        *_python(answered, seconds),
        *_refused(answered),
        *_devices(answered, seconds),
        *gpu_steps(found),
        *_load(answered),
        *_clocks(answered),
        *_interfaces(answered),
        *_ports(hosts, found.network, seconds),
        *_total(found.total),
    ]
    return tuple(parts)


def why_no_sum(hosts: Sequence[HostFound], network: Network) -> str:
    """Why a job on these hosts need not be tried; "" if it may work."""
    answered = [host for host in hosts if host.surveyed is not None]
    steps = [
        _reached(hosts, {}),
        *_python(answered, {}),
        *_refused(answered),
        *_ports(hosts, network, {}),
    ]
    failed = [step.name for step in steps if step.verdict == "FAILED"]
    return f"see {', '.join(failed)}" if failed else ""


# --- each part ---


def _reached(hosts: Sequence[HostFound], seconds: Mapping[str, float]) -> Step:
    lost = [host for host in hosts if host.unreachable]
    many = counted(len(hosts), "host")
    text = f"{many} {'answers' if len(hosts) == 1 else 'answer'}"
    if lost:
        text = (
            f"{len(lost)} of {many} cannot be used" if len(hosts) > 1 else "the host cannot be used"
        )
    return Step(
        name="hosts",
        verdict="FAILED" if lost else "ok",
        text=text,
        details=tuple(_why_lost(lost)),
        seconds=seconds.get("hosts"),
    )


def _python(hosts: Sequence[HostFound], seconds: Mapping[str, float]) -> Iterator[Step]:
    """The ranks' Python, and jax there."""
    pythons = [(host, host.python) for host in hosts if host.python is not None]
    if not pythons:
        return
    wrong = [host for host, python in pythons if python.error]
    sound = [host for host, python in pythons if not python.error]
    details = list(by_text(wrong, _python_error))
    failed = [*_differences(sound, "jax"), *_differences(sound, "jaxlib")]
    if failed:
        failed.append(_DIFFERENT)
    old = list(by_text([host for host in sound if _too_old(host)], _too_old))
    warned = _plugin_differences(sound)
    warned += by_text([host for host in sound if unfit_plugins(host)], unfit_plugins)
    versions = [host.python.version for host in sound if host.python is not None]
    usual = common(versions)
    others = [host for host in sound if host.python is not None and host.python.version != usual]
    warned += by_text(
        others, lambda host: f"Python {host.python and host.python.version}, elsewhere {usual}"
    )
    wheres = (
        ""
        if len(hosts) == 1
        else " on all hosts"
        if not (details or failed or old or warned)
        else ""
    )
    text = f"Python {usual}"
    for package in ("jax", "jaxlib", *_told(_plugins(sound))):
        if version := common([one for host in sound if (one := host.version(package))]):
            text += f", {package} {version}"
    if not sound:
        text, wheres = "no host has jax" if len(hosts) > 1 else "no jax", ""
    elif details or failed:
        text, wheres = "not the same on all hosts" if failed else "not on all hosts", ""
    yield Step(
        name="jax",
        verdict="FAILED" if details or failed or old else "warning" if warned else "ok",
        text=text + wheres,
        details=(*details, *failed, *old, *warned),
        seconds=seconds.get("survey"),
    )


def _too_old(host: HostFound) -> str:
    return why_too_old(host.version("jax"))


def _python_error(host: HostFound) -> str:
    python = host.python
    assert python is not None
    if not python.path:
        return python.error
    cure = "; install it there, or choose another with --python or python= in the hosts file"
    return f"{python.path} {python.error}{cure if python.version else ''}"


def _differences(hosts: Sequence[HostFound], package: str) -> list[str]:
    """Who has another version than most."""
    usual = common([host.version(package) for host in hosts])
    others = [host for host in hosts if host.version(package) != usual]
    there = f"elsewhere {usual or 'none'}"
    return list(
        by_text(others, lambda host: f"{package} {host.version(package) or 'is missing'}, {there}")
    )


def _plugins(hosts: Sequence[HostFound]) -> list[str]:
    """What makes jax use an accelerator, on any of these hosts; and NCCL, where it has GPUs."""
    found = {name for host in hosts if host.python is not None for name in host.python.packages}
    if not any(host.gpus for host in hosts):  # it came with another package
        found = {name for name in found if not name.startswith(_NCCL)}
    return sorted(found - {"jax", "jaxlib"})


def _told(plugins: Sequence[str]) -> list[str]:
    """Those of which the version is told: most plugins come in two parts, of one version."""
    parts = {name.replace("-plugin", "-pjrt") for name in plugins if name.endswith("-plugin")}
    return [name for name in plugins if name not in parts]


def _plugin_differences(hosts: Sequence[HostFound]) -> list[str]:
    return [line for name in _told(_plugins(hosts)) for line in _differences(hosts, name)]


def _refused(hosts: Sequence[HostFound]) -> Iterator[Step]:
    """What else keeps ranks from being started."""
    reasons: dict[str, list[str]] = {}
    for host in hosts:
        for reason in host.surveyed.refused if host.surveyed is not None else ():
            reasons.setdefault(reason, []).append(host.name)
    if reasons:
        lines = tuple(f"{some(names)}: {reason}" for reason, names in reasons.items())
        yield Step(name="start", verdict="FAILED", text="ranks cannot be started", details=lines)


def _devices(hosts: Sequence[HostFound], seconds: Mapping[str, float]) -> Iterator[Step]:
    """What JAX computes on, and the GPUs that it does not see."""
    unknown = [host for host in hosts if host.devices_error]
    details = list(by_text(unknown, lambda host: host.devices_error))
    known = [host for host in hosts if host.devices]
    # A host with more ranks than others may well have more devices.
    for slots in sorted({host.ranks for host in known}):
        alike = [host for host in known if host.ranks == slots]
        details += unlike(alike, lambda host: devices_text(host.devices))
    details += unlike(hosts, lambda host: chips_text(host) or "no TPU chips")
    unused = [host for host in known if chips_text(host) and _platforms(host) == {"cpu"}]
    details += by_text(
        unused,
        lambda host: (
            f"{chips_text(host)}, and JAX uses the CPU: is a jax for TPUs installed (jax[tpu]), "
            "or JAX_PLATFORMS or -d set?"
        ),
    )
    if part := part_note(host.surveyed.facts.tpu for host in hosts if host.surveyed is not None):
        details.append(part)
    if not known and not unknown:
        return
    yield Step(
        name="devices",
        verdict="FAILED" if unknown else "warning" if details else "ok",
        text=_all_devices(known) or "not known",
        details=tuple(details),
        seconds=seconds.get("devices"),
    )


def _all_devices(hosts: Sequence[HostFound]) -> str:
    counts: Counter[tuple[str, str]] = Counter()
    for host in hosts:
        for one in host.devices:
            counts[one.platform, one.kind] += one.count
    text = devices_text([Devices(*kind, count) for kind, count in counts.items()])
    return f"{text} in all" if text and len(hosts) > 1 else text


def devices_text(devices: Sequence[Devices]) -> str:
    """Devices as `2 cpu` or `8 NVIDIA H100 80GB HBM3`."""
    return ", ".join(f"{one.count} {one.kind or one.platform}" for one in devices)


def chips_text(host: HostFound) -> str:
    """A host's TPU chips, as it counts them; "" if it has none, or was not asked."""
    tpu = host.surveyed.facts.tpu if host.surveyed is not None else None
    return "" if tpu is None else f"{counted(tpu.chips, 'TPU chip')} ({tpu.model})"


def _platforms(host: HostFound) -> set[str]:
    return {one.platform for one in host.devices}


def is_busy(host: HostFound) -> bool:
    """Whether other programs take much of a host's cores."""
    found = host.surveyed
    return found is not None and 0 < found.cores * _BUSY < found.load


def _load(hosts: Sequence[HostFound]) -> Iterator[Step]:
    by_cores: dict[int, list[HostFound]] = {}
    for host in hosts:
        if is_busy(host) and host.surveyed is not None:
            by_cores.setdefault(host.surveyed.cores, []).append(host)
    if by_cores:
        lines = [_load_text(busy, cores) for cores, busy in by_cores.items()]
        text = "other programs run there: the slowest rank sets the pace"
        yield Step(name="load", verdict="warning", text=text, details=tuple(lines))


def _load_text(hosts: Sequence[HostFound], cores: int) -> str:
    loads = [host.surveyed.load for host in hosts if host.surveyed is not None]
    low, high = f"{min(loads):.1f}", f"{max(loads):.1f}"
    load = low if low == high else f"{low}-{high}"
    return f"{some(host.name for host in hosts)}: load {load} on {counted(cores, 'core')}"


def is_off(host: HostFound) -> bool:
    """Whether a host's clock is wrong, or the launcher's is."""
    return host.clock is not None and host.clock.surely_s > CLOCK_S


def _clocks(hosts: Sequence[HostFound]) -> Iterator[Step]:
    clocks = [host.clock for host in hosts if host.clock is not None]
    if not clocks or (len(hosts) == 1 and clocks[0].surely_s == 0):
        return
    off = [host for host in hosts if is_off(host)]
    most = max(clock.surely_s for clock in clocks)
    lines = by_text(off, lambda host: f"{_apart(host)} the launcher's: is NTP running there?")
    yield Step(
        name="clocks",
        verdict="warning" if off else "ok",
        text=f"up to {most:.1f} s from the launcher's"
        if off
        else f"within {max(most, 0.01):.2f} s of the launcher's",
        details=tuple(lines),
    )


def _apart(host: HostFound) -> str:
    assert host.clock is not None
    seconds = host.clock.ahead_s
    return f"{abs(seconds):.1f} s {'ahead of' if seconds > 0 else 'behind'}"


def _interfaces(hosts: Sequence[HostFound]) -> Iterator[Step]:
    """By which interface each host faces the others, where they are other machines."""
    known = [host for host in hosts if host.interface is not None]
    if not known:
        return
    details = list(unlike(known, _line_text))
    if len({host.interface.mtu for host in known if host.interface is not None}) > 1:
        details.append("give all the same MTU: large packets may be lost where they differ")
    names = dict.fromkeys(host.interface.name for host in known if host.interface is not None)
    usual = common([_line_text(host) for host in known])
    yield Step(
        name="network",
        verdict="warning" if details else "ok",
        text=f"{some(names)} {'faces' if len(names) == 1 else 'face'} the other hosts: {usual}",
        details=tuple(details),
    )


def _line_text(host: HostFound) -> str:
    """`MTU 9000, 25 Gbit/s`."""
    found = host.interface
    assert found is not None
    speed = f", {found.mbit_s / 1000:g} Gbit/s" if found.mbit_s else ""
    return f"MTU {found.mtu or 'unknown'}{speed}"


def _ports(
    hosts: Sequence[HostFound], network: Network, seconds: Mapping[str, float]
) -> Iterator[Step]:
    """Whether the hosts reach the coordinator, and one another."""
    if not (network.coordinator or network.error or network.pairs):
        return
    details = [network.error] if network.error else []
    details += _gaps(network.gaps, len(hosts))
    text = f"coordinator at {network.coordinator}" if network.coordinator else ""
    if network.pairs and not network.gaps:
        text = f"{text}; " if text else ""
        text += f"all hosts reach one another ({network.pairs} ways)"
    if network.gaps:
        text = f"{len(network.gaps)} of {network.pairs} ways between hosts are closed"
    elif network.error:
        text = "the coordinator cannot be reached by all"
    yield Step(
        name="ports",
        verdict="FAILED" if details else "ok",
        text=text,
        details=tuple(details),
        seconds=seconds.get("ports"),
    )


def _gaps(gaps: Sequence[Gap], hosts: int) -> Iterator[str]:
    """Who cannot reach whom, those with the same peers together, and what to do."""
    peers: dict[str, list[Gap]] = {}
    for gap in gaps:
        peers.setdefault(gap.host, []).append(gap)
    alike: dict[str, list[str]] = {}
    for host, closed in peers.items():
        whole = len(closed) == hosts - 1
        to = "any other host" if whole and hosts > 2 else some(gap.peer for gap in closed)
        alike.setdefault(to, []).append(host)
    for to, names in alike.items():
        first = next(gap for gap in gaps if gap.host == names[0])
        example = f"{first.peer}{first.where}" if first.why else "it has only loopback"
        yield f"{some(names)} cannot reach {to} ({example})"
    if gaps:
        yield (
            "JAX's collectives (Gloo on CPU, NCCL on GPU) connect the hosts at random ports: let "
            "firewalls pass all ports between them"
        )


def _total(total: GlobalSum) -> Iterator[Step]:
    """The job, from its start to the times of its sums."""
    if total.why_not and not total.values:
        verdict: Verdict = "FAILED" if total.started else "not run"
        yield Step(name="sum", verdict=verdict, text=total.why_not)
        return
    imported = f"(after {total.import_s:.1f} s for `import jax`)"
    yield Step(
        name="initialize",
        text=f"{counted(total.ranks, 'rank')} joined {imported}",
        seconds=total.initialize_s,
    )
    if total.slices:
        yield Step(name="slices", text=_slices(total.slices))
    right = set(total.values) == {total.expected} and total.right
    got = ", ".join(map(str, total.values))
    text = f"{got} over {counted(total.devices, 'device')}"
    details = () if right else (f"expected {total.expected}",)
    if set(total.values) == {total.expected} and not total.right:
        details = ("the sum of many numbers is wrong",)
    if total.why_not:
        details = (*details, total.why_not)
    yield Step(
        name="sum",
        verdict="ok" if right and not total.why_not else "FAILED",
        text=f"{text}, as expected" if right else text,
        details=details,
        seconds=total.first_s,
    )
    if total.timings:
        yield Step(name="speed", text=speed_text(total))


def _slices(slices: Sequence[int]) -> str:
    """The slices; `jax.make_mesh` takes no more than one."""
    text = slices_text(slices)
    return text if len(set(slices)) == 1 else f"{text}: jax.make_mesh refuses more than one"


def speed_text(total: GlobalSum) -> str:
    """How long the sums took, and how many bytes a second that is."""
    parts = []
    for one in total.timings:
        # Of little, the latency is what counts.
        rate = one.size / one.seconds / 1e9 if one.seconds and one.size >= 1 << 20 else 0.0
        rated = f" ({_rate_text(rate)} GB/s)" if rate else ""
        parts.append(f"{size_text(one.size)} in {_duration_text(one.seconds)}{rated}")
    many = total.timings[0].devices
    whose = f"from each of {many} devices" if many > 1 else "on the one device"
    return f"{', '.join(parts)}, {whose}"


def _rate_text(rate: float) -> str:
    return f"{rate:.0f}" if rate >= 10 else f"{rate:.2g}"


def _duration_text(seconds: float) -> str:
    for unit, length in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= length:
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"


def size_text(size: int) -> str:
    """A number of bytes as `1 KB` or `64 MB`."""
    return f"{size >> 20} MB" if size >= 1 << 20 else f"{size >> 10} KB"


def _why_lost(hosts: Sequence[HostFound]) -> Iterator[str]:
    """The same of those that did not answer: what a client says holds the host's own name."""
    alike: dict[str, list[HostFound]] = {}
    for host in hosts:
        alike.setdefault(host.unreachable.replace(host.name, "{host}"), []).append(host)
    for some_hosts in alike.values():
        yield f"{some(host.name for host in some_hosts)}: {some_hosts[0].unreachable}"

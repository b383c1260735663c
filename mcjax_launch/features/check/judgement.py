"""Judges what has been found as ok, note, warning or error: a function for each topic; pure."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal

from mcjax_launch.features.check.messages import NetworkInterface, Surveyed
from mcjax_launch.features.check.told import DeviceCount, DevicesCounted, PythonFacts, Told
from mcjax_launch.job.devices import GpuShares, slice_part_note
from mcjax_launch.job.job import Job
from mcjax_launch.job.mutual_tls import why_plain
from mcjax_launch.kernel.launcher.peers import Gap, remedy
from mcjax_launch.kernel.wire.interpreter import why_jax_too_old
from mcjax_launch.kernel.wire.value import Value
from mcjax_launch.ranks import counted, grouped, ranges, slices_text
from mcjax_launch.wording import some, visible

# --- findings, and their lines ---

Verdict = Literal["ok", "note", "warning", "error"]
_VERDICT_WIDTH, _TOPIC_WIDTH = 9, 13


class HostFound(Value, kw_only=True):
    """What is known of a host that has answered.

    Args:
        ranks: how many it would get.
        python: that they would get.
        ahead_s: its clock at least is of the launcher's; below 0 if it is behind.
        devices: that JAX has there.
        share: of its GPUs, that each rank would get.
        interface: that faces the other hosts, where these are other machines.

    """

    name: str
    ranks: int
    surveyed: Surveyed
    python: PythonFacts
    ahead_s: float
    devices: DevicesCounted = DevicesCounted((), "")
    share: GpuShares = GpuShares()
    interface: NetworkInterface | None = None

    @property
    def gpus(self) -> int:
        """How many GPUs a program there would see."""
        return sum(one.count for one in self.surveyed.gpus)

    @property
    def platforms(self) -> set[str]:
        """Of the devices that JAX has there."""
        return {one.platform for one in self.devices.devices}


class Found(Value, kw_only=True):
    """What the survey has found out.

    Args:
        hosts: that have answered.
        lost: why a host did not answer, or no longer does, by its name.
        seconds: until all hosts were reached.
        ways: so many were tried of those that collectives would take between two hosts.
        gaps: those that are closed.
        uses: whose collectives the ranks use; see `peers.collectives`.

    """

    hosts: tuple[HostFound, ...]
    lost: dict[str, str]
    seconds: float
    ways: int = 0
    gaps: tuple[Gap, ...] = ()
    uses: str = ""


class Judgement(Value):
    """Something found out.

    Args:
        hosts: those of which it was found out, by name; empty for the job as a whole.
        cure: what to do about it; may be empty.

    """

    topic: str
    value: str
    hosts: tuple[str, ...] = ()
    verdict: Verdict = "ok"
    cure: str = ""


def merged(findings: Iterable[Judgement]) -> list[Judgement]:
    """The same of several hosts as one finding of all of these, where the first of them was."""
    same: dict[Judgement, list[str]] = {}
    for one in findings:
        same.setdefault(one.replaced(hosts=()), []).extend(one.hosts)
    return [one.replaced(hosts=tuple(hosts)) for one, hosts in same.items()]


def topics(findings: Sequence[Judgement], verdict: Verdict) -> list[str]:
    """The topics in which there is a finding with this verdict, each once."""
    return list(dict.fromkeys(one.topic for one in findings if one.verdict == verdict))


def lines(findings: Sequence[Judgement], width: int) -> Iterator[str]:
    """The findings in lines of this width. A long path stays whole, so that it can be copied.

    A finding that is ok and the same on all hosts does not name them. A cure that several findings
    in a row share stands after the last.
    """
    of_topic = Counter(finding.topic for finding in findings)
    indent = " " * (_VERDICT_WIDTH + _TOPIC_WIDTH)
    for one, after in zip(findings, [*findings[1:], None], strict=True):
        begin = f"{one.verdict:<{_VERDICT_WIDTH}}{one.topic:<{_TOPIC_WIDTH}}"
        named = one.hosts and (one.verdict != "ok" or of_topic[one.topic] > 1)
        value = f"{some(one.hosts)}: {one.value}" if named else one.value
        cure = "" if after is not None and after.cure == one.cure else one.cure
        for text, head in (value, begin), (cure, f"{indent}- "):
            yield from textwrap.wrap(
                visible(text),
                width,
                initial_indent=head,
                subsequent_indent=" " * len(head),
                break_on_hyphens=False,
                break_long_words=False,
            )


def last_line(findings: Sequence[Judgement], of_what: str) -> str:
    """Whether a job would work, and in which topics there are errors and warnings."""
    wrong: dict[str, list[str]] = {
        "errors": topics(findings, "error"),
        "warnings": topics(findings, "warning"),
    }
    found = "; ".join(f"{kind}: {', '.join(names)}" for kind, names in wrong.items() if names)
    line = f"{'FAILED' if wrong['errors'] else 'passed'}: {of_what}"
    return f"{line} ({found})" if found else line


# --- judging: a function for each topic ---

Hosts = Sequence[HostFound]
Text = Callable[[HostFound], str]
Findings = Iterator[Judgement]

# Clocks farther apart than this make files and logs of several hosts misleading.
_CLOCK_S = 1.0
# A host whose cores are used to this part by others makes the whole job wait.
_BUSY = 0.5
# A GPU with less of its memory free is another program's.
_MOSTLY = 0.5
# One with less than this in all is there for a laptop's screen: nobody misses it.
_LEAST_KIB = 4 << 20
# NCCL takes some 10 MB of /dev/shm for each pair of GPUs that it joins there; Docker gives 64 MB.
_LEAST_SHM_KIB = 1 << 20
# By JAX's instructions for its installation: the least major version of the driver.
_DRIVERS = {"cuda12": 525, "cuda13": 580}
_PLUGIN = re.compile(r"jax-((?:cuda|rocm)\d{1,4})-(?:plugin|pjrt)")
# Of a version: what follows its numbers.
_NOT_NUMBERS = re.compile(r"\.?[^\d.].*")


def judge(found: Found) -> Findings:
    """All that is known without devices: an error of these keeps a job from being tried."""
    yield from _reached(found)
    yield from _refused(found.hosts)
    yield from _python(found.hosts)
    with_jax = [host for host in found.hosts if not host.python.error]
    yield from _jax(with_jax)
    yield from judge_plugins(with_jax)
    yield from each("cores", found.hosts, lambda host: str(host.surveyed.cores or ""))
    yield from _memory(found.hosts)
    yield from _load(found.hosts)
    yield from _clock(found.hosts)
    yield from _network([host for host in found.hosts if host.interface is not None])
    yield from _ports(found)


def _reached(found: Found) -> Findings:
    """Lost hosts are one finding where the reason is the same but for their names."""
    same = grouped((why.replace(name, "{host}"), name) for name, why in found.lost.items())
    for lost in same.values():
        yield Judgement("hosts", found.lost[lost[0]], tuple(lost), "error")
    well = sum(host.name not in found.lost for host in found.hosts)
    many = len({*found.lost, *(host.name for host in found.hosts)})
    if well:
        yield Judgement("hosts", f"{well} of {many} reached in {found.seconds:.1f} s")


def _refused(hosts: Hosts) -> Findings:
    """What keeps ranks from being started, beside their Python."""
    return each("start", hosts, lambda host: host.surveyed.refused, "error")


def _python(hosts: Hosts) -> Findings:
    for host in hosts:
        if host.python.error:
            text = f"{host.python.path} {host.python.error}".strip()
            cure = "install it, or choose another with --python or python= in the hosts file"
            yield Judgement(
                "python", text, (host.name,), "error", cure if host.python.version else ""
            )
    well = [host for host in hosts if not host.python.error]
    yield from alike("python", well, lambda host: host.python.version)
    yield from each("interpreter", well, lambda host: host.python.path)


def _jax(hosts: Hosts) -> Findings:
    def versions(host: HostFound) -> str:
        packages = host.python.packages
        return f"{packages['jax']}, jaxlib {packages.get('jaxlib', 'is missing')}"

    cure = "install the same everywhere: ranks with different ones may wait in vain for 300 s"
    yield from alike("jax", hosts, versions, "error", cure)
    yield from each(
        "jax", hosts, lambda host: why_jax_too_old(host.python.packages["jax"]), "error"
    )


def _memory(hosts: Hosts) -> Findings:
    if known := [host for host in hosts if host.surveyed.memory_kib]:
        free = gib(host.surveyed.free_kib for host in known)
        whole = gib(host.surveyed.memory_kib for host in known)
        yield Judgement("memory", f"{free} of {whole} GiB free", names(known))


def _load(hosts: Hosts) -> Findings:
    busy = [host for host in hosts if 0 < host.surveyed.cores * _BUSY < host.surveyed.load]
    if busy:
        text = f"{span(host.surveyed.load for host in busy)} in the last minute"
        cure = "other programs run there: the slowest rank sets the pace"
        yield Judgement("load", text, names(busy), "warning", cure)


def _clock(hosts: Hosts) -> Findings:
    def off(host: HostFound) -> str:
        side = "ahead of" if host.ahead_s > 0 else "behind"
        return f"{abs(host.ahead_s):.1f} s {side} the launcher's"

    wrong = [host for host in hosts if abs(host.ahead_s) > _CLOCK_S]
    yield from each("clock", wrong, off, "warning", "is NTP running there?")
    if well := [host for host in hosts if host not in wrong]:
        most = max(0.01, *(abs(host.ahead_s) for host in well))
        yield Judgement("clock", f"within {most:.2f} s of the launcher's", names(well))


def _network(hosts: Hosts) -> Findings:
    """The interfaces that face other machines."""

    def speed(host: HostFound) -> str:
        assert host.interface is not None
        speed = f", {host.interface.mbit_s / 1000:g} Gbit/s" if host.interface.mbit_s else ""
        return f"MTU {host.interface.mtu or 'unknown'}{speed}"

    cure = "give all the same MTU and speed: large packets may be lost where the MTU differs"
    yield from each("interface", hosts, lambda host: host.interface.name if host.interface else "")
    yield from alike("network", hosts, speed, cure=cure)


def _ports(found: Found) -> Findings:
    """The ways between hosts that collectives take; who cannot reach whom."""
    if found.ways and not found.gaps:
        yield Judgement("ports", f"all hosts reach one another ({found.ways} ways)")
    for gap in found.gaps:
        text = f"cannot reach {gap.peer}{gap.where}"
        yield Judgement("ports", text, (gap.host,), "error", remedy(found.uses))


def judge_mtls(job: Job, hosts: Hosts, *, alone: bool) -> Findings:
    """Say whether only processes of the job can join it at the coordinator's port.

    Args:
        job: as it would run.
        hosts: that have jax.
        alone: the job has one host.

    """
    if not hosts:
        return
    if job.mtls == "off" and job.hook and alone and job.coordinator is None:
        yield Judgement("mtls", "not needed: the coordinator has a private socket, and no port")
        return
    why = job.mtls_reason or "--mtls off"
    if job.mtls != "off":
        why = why_plain({host.name: host.python.packages["jax"] for host in hosts})
    if why:
        cure = "any process that reaches the coordinator's port can end the job"
        yield Judgement("mtls", f"not used: {why}", verdict="note", cure=cure)
    else:
        yield Judgement("mtls", "only processes of the job can join it")


# --- what is known when JAX has been asked ---


def judge_devices(hosts: Hosts) -> Findings:
    """What JAX computes on."""
    yield from each("devices", hosts, lambda host: host.devices.error, "error")
    # A host with more ranks than others may well have more devices.
    for ranks in dict.fromkeys(host.ranks for host in hosts):
        known = [host for host in hosts if host.ranks == ranks and host.devices.devices]
        yield from alike("devices", known, lambda host: _devices_text(host.devices.devices))
    yield from _tpus(hosts)


def _devices_text(devices: tuple[DeviceCount, ...]) -> str:
    """`2 cpu` or `8 NVIDIA H100 80GB HBM3`."""
    return ", ".join(f"{one.count} {one.kind or one.platform}" for one in devices)


def _tpus(hosts: Hosts) -> Findings:
    """The chips of TPU hosts, as these count them."""

    def chips(host: HostFound) -> str:
        tpu = host.surveyed.facts.tpu
        return f"{counted(tpu.chips, 'chip')} ({tpu.model})" if tpu is not None else ""

    yield from alike("tpu", hosts, chips)
    unused = [host for host in hosts if chips(host) and host.platforms == {"cpu"}]
    cure = "is a jax for TPUs installed (jax[tpu]), or JAX_PLATFORMS or -d set?"
    yield from each("tpu", unused, lambda host: "JAX uses the CPU", "warning", cure)
    if part := slice_part_note(host.surveyed.facts.tpu for host in hosts):
        yield Judgement("tpu", part, verdict="warning")


# --- GPUs: what a host needs before its first job ---


def judge_plugins(hosts: Hosts) -> Findings:
    """What makes jax use an accelerator, and NCCL where there are GPUs; of hosts with jax."""
    any_gpus = any(host.gpus for host in hosts)

    def plugins(host: HostFound) -> str:
        packages = host.python.packages
        # Most come in two parts, of one version.
        parts = {name.replace("-plugin", "-pjrt") for name in packages if name.endswith("-plugin")}
        return ", ".join(
            f"{name} {packages[name]}"
            for name in sorted(packages.keys() - parts - {"jax", "jaxlib"})
            if any_gpus or not name.startswith("nvidia-nccl-")  # which came with another package
        )

    yield from alike("plugins", hosts, plugins)
    for host in hosts:
        cure = f'{_install(host)}=={host.python.packages["jax"]}"'
        yield from each("plugins", [host], _unfit, "warning", cure)


def judge_gpus(hosts: Hosts) -> Findings:
    """All that is to be said of GPUs; nothing where there are none."""
    large = [host for host in hosts if host.gpus and not _are_small(host)]
    yield from alike("gpus", hosts, _gpus)
    for host in large:
        yield from _unused(host)
    cure = "a newer driver, or CUDA's packages for forward compatibility"
    yield from each("gpus", large, _old_driver, "warning", cure)
    yield from _gpu_memory(hosts)
    yield from each("gpu memory", large, _taken, "warning")
    yield from each("shares", hosts, _share)
    yield from each("shares", hosts, lambda host: host.share.uneven, "warning")
    yield from _shared_memory([host for host in hosts if host.gpus > 1 and host.surveyed.shm_kib])


def _unfit(host: HostFound) -> str:
    """The plugins that jaxlib will not use, by the rule of its plugin_support: other numbers.

    Those for ROCm have versions of their own.
    """
    jaxlib = host.python.packages.get("jaxlib", "")
    unfit = [
        f"{name} {version}"
        for name, version in sorted(host.python.packages.items())
        if _kind(name).startswith("cuda") and _numbers(version) != _numbers(jaxlib)
    ]
    return f"{', '.join(unfit)} not used, for jaxlib is {jaxlib}" if jaxlib and unfit else ""


def _numbers(version: str) -> str:
    return _NOT_NUMBERS.sub("", version)


def _kind(package: str) -> str:
    """`cuda12` for jax-cuda12-plugin; "" for another package."""
    found = _PLUGIN.fullmatch(package)
    return found[1] if found else ""


def _install(host: HostFound) -> str:
    """The beginning of the command that installs the plugin for a host's GPUs."""
    amd = any("AMD" in one.name or "Radeon" in one.name for one in host.surveyed.gpus)
    found = [kind for name in host.python.packages if (kind := _kind(name)).startswith("cuda")]
    extra = "rocm7-local" if amd else max(found, default="cuda12")  # runs with most drivers
    return f'{host.python.path} -m pip install "jax[{extra}]'


def _gpus(host: HostFound) -> str:
    return "; ".join(
        f"{one.count} {one.name}{one.driver and f', driver {one.driver}'}"
        for one in host.surveyed.gpus
    )


def _are_small(host: HostFound) -> bool:
    memory = host.surveyed.gpu_memory
    return bool(memory) and all(one.memory_kib < _LEAST_KIB for one in memory)


def _unused(host: HostFound) -> Findings:
    """Why JAX uses none of a host's GPUs."""
    if host.python.error or host.platforms - {"cpu"}:
        return
    text, cure = f"{counted(host.gpus, 'GPU')}, and JAX uses the CPU", ""
    if host.surveyed.facts.platforms == "cpu":
        text += ": JAX_PLATFORMS=cpu is set there"
    elif not any(map(_kind, host.python.packages)):
        text += ": there is no plugin for jax"
        cure = f'{_install(host)}"'
    elif host.platforms:
        cure = f"`{host.python.path} -c 'import jax; jax.devices(\"gpu\")'` says why"
    else:
        return
    yield Judgement("gpus", text, (host.name,), "warning", cure)


def _old_driver(host: HostFound) -> str:
    """A driver that the CUDA of the plugin may not run with."""
    kinds = {_kind(name) for name in host.python.packages} & _DRIVERS.keys()
    for kind, driver in {(kind, one.driver) for kind in kinds for one in host.surveyed.gpus}:
        major = driver.partition(".")[0]
        if major.isdecimal() and int(major) < _DRIVERS[kind]:
            return f"driver {driver} is older than {_DRIVERS[kind]}, which jax[{kind}] needs"
    return ""


def _gpu_memory(hosts: Hosts) -> Findings:
    if known := [host for host in hosts if host.surveyed.gpu_memory]:
        memory = [one for host in known for one in host.surveyed.gpu_memory]
        free, whole = gib(one.free_kib for one in memory), gib(one.memory_kib for one in memory)
        yield Judgement("gpu memory", f"{free} of {whole} GiB free on each", names(known))


def _taken(host: HostFound) -> str:
    """GPUs whose memory is mostly another program's."""
    memory = host.surveyed.gpu_memory
    taken = [one for one in memory if one.free_kib < one.memory_kib * _MOSTLY]
    if not taken:
        return ""
    held = gib(one.memory_kib - one.free_kib for one in taken)
    which = f"GPU{'s' if len(taken) > 1 else ''} {ranges(one.number for one in taken)}"
    return f"other programs hold {held} GiB of {which}, of which JAX takes 75% at its start"


def _share(host: HostFound) -> str:
    """How its GPUs would be shared. Where it has none, a variable may hide them."""
    concerned = host.gpus or "_VISIBLE_DEVICES=" in host.share.words
    return host.share.words if concerned else ""


def _shared_memory(hosts: Hosts) -> Findings:
    """What is free of /dev/shm, where there are several GPUs."""

    def little(host: HostFound) -> str:
        free, whole = host.surveyed.shm_free_kib, host.surveyed.shm_kib
        if free >= _LEAST_SHM_KIB:
            return ""
        return f"{free >> 10} of {whole >> 10} MiB of /dev/shm free, too little for NCCL"

    if well := [host for host in hosts if not little(host)]:
        free = gib(host.surveyed.shm_free_kib for host in well)
        yield Judgement("shm", f"{free} GiB of /dev/shm free", names(well))
    cure = "`ls -l /dev/shm` lists what is there; in Docker use --shm-size=8g or --ipc=host, "
    cure += "in Kubernetes an emptyDir with `medium: Memory` there"
    yield from each("shm", hosts, little, "warning", cure)


# --- the sum ---


def judge_internals(ranks: Sequence[tuple[str, Told]]) -> Findings:
    """Judge how many of JAX's internals the hook has found on each host; pure.

    Args:
        ranks: the host of each, and what it has told.

    """
    cure = "another jax may have them, or a newer mcjax-launch may do without"
    for host, told in dict(ranks).items():
        if found := told.get("internals"):
            count, missing = found["count"], found["missing"]
            text = f"{count - len(missing)} of {count} of JAX's internals are found"
            yield Judgement("hook", text, (host,), "warning" if missing else "ok")
            for lost in dict.fromkeys(missing.values()):
                names = ", ".join(name for name in missing if missing[name] == lost)
                yield Judgement("hook", f"without {names}: {lost}", (host,), "warning", cure)


def judge_sum(ranks: Sequence[Told], why_not: str) -> Findings:
    """What came of the sum; pure.

    Args:
        ranks: what each has told.
        why_not: how the job ended, unless it ended well.

    """
    complete = bool(ranks) and all("sums" in told for told in ranks)
    if complete:
        yield from _results(ranks)
    if why_not or not complete:
        why_not = why_not or "not all ranks have told their results"
        yield Judgement("sum", why_not, verdict="error")


def _results(ranks: Sequence[Told]) -> Findings:
    def slowest(name: str) -> str:
        return f"{max(told[name] for told in ranks):.1f} s"

    took = f"`import jax` took {slowest('import_s')}, jax.devices() {slowest('devices_s')}"
    where = f"joined at {ranks[0]['coordinator']} in {slowest('initialize_s')}"
    yield Judgement("initialize", f"{counted(len(ranks), 'rank')} {where} ({took})")
    slices = [told["slice"] for told in ranks]
    yield Judgement("slices", slices_text(slices))
    if len(set(slices)) > 1:
        yield Judgement("slices", "jax.make_mesh takes no more than one", verdict="note")
    first, little, much = ranks[0]["sums"]
    text = f"{first['values'][0]} over {counted(first['devices'], 'device')}"
    yield Judgement("sum", f"{text}, in {slowest('first_s')}")
    for one in [one for told in ranks for one in told["sums"]]:
        expected = one["devices"] * (one["devices"] + 1) // 2
        for value in set(one["values"]) - {expected}:
            text = f"{value} over {counted(one['devices'], 'device')}, not {expected}"
            yield Judgement("sum", f"{text}, of {one['size']} bytes each", verdict="error")
    if much["devices"] > 1:
        text = f"1 KB in {1e3 * little['seconds']:.2f} ms, {much['size'] >> 20} MB in "
        text += f"{1e3 * much['seconds']:.0f} ms ({much['size'] / much['seconds'] / 1e9:.2f} GB/s)"
        yield Judgement("speed", f"{text}, from each of {much['devices']} devices")


# --- the same of several hosts ---


def each(
    topic: str, hosts: Hosts, value: Text, verdict: Verdict = "ok", cure: str = ""
) -> Findings:
    """A finding for each host, but for those with nothing to be said."""
    for host in hosts:
        if text := value(host):
            yield Judgement(topic, text, (host.name,), verdict, cure)


def alike(
    topic: str, hosts: Hosts, value: Text, verdict: Verdict = "warning", cure: str = ""
) -> Findings:
    """The same, where it is well that a host has what most have, and nothing else is."""
    usual, _ = Counter(map(value, hosts)).most_common(1)[0] if hosts else ("", 0)
    for host in hosts:
        text = value(host) or "none"
        if value(host) != usual:
            text = f"{text}; elsewhere {usual or 'none'}"
            yield Judgement(topic, text, (host.name,), verdict, cure)
        elif usual:
            yield Judgement(topic, text, (host.name,))


def names(hosts: Iterable[HostFound]) -> tuple[str, ...]:
    """Their names."""
    return tuple(host.name for host in hosts)


def span(numbers: Iterable[float]) -> str:
    """Numbers as `1.5` or `0.5-2.0`."""
    texts = [f"{number:.1f}" for number in sorted(numbers)]
    return texts[0] if texts[0] == texts[-1] else f"{texts[0]}-{texts[-1]}"


def gib(sizes_kib: Iterable[int]) -> str:
    """The same of sizes, in GiB."""
    return span(size / (1 << 20) for size in sizes_kib)

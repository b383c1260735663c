"""Judgements of a survey as ok, note, warning or error: a function per topic, without effects."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal

from mcjax_launch.features.check.messages import NetworkInterface, Surveyed
from mcjax_launch.features.check.probe_output import (
    DeviceCount,
    DevicesCounted,
    ProbeOutput,
    PythonFacts,
)
from mcjax_launch.job.devices import GpuShares, format_slice_part_note
from mcjax_launch.job.job import Job
from mcjax_launch.job.mutual_tls import explain_missing_tls
from mcjax_launch.kernel.launcher.peers import Gap, format_remedy
from mcjax_launch.kernel.wire.interpreter import explain_old_jax
from mcjax_launch.kernel.wire.value import Value
from mcjax_launch.ranks import format_count, format_ranges, format_slices, group_by_key
from mcjax_launch.wording import escape_unprintable, format_names

# --- findings, and their lines ---

Verdict = Literal["ok", "note", "warning", "error"]
_VERDICT_WIDTH, _TOPIC_WIDTH = 9, 13


class HostFound(Value, kw_only=True):
    """Facts about a host that has answered.

    Args:
        ranks: number of ranks that it would get.
        surveyed: its answer to the survey.
        python: the Python that they would get.
        ahead_s: seconds by which its clock at least is ahead of the launcher's; below 0 if behind.
        devices: the devices that JAX finds there.
        share: the GPUs that each rank would get.
        interface: the interface towards the other hosts, if those are other machines.

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
        """Number of GPUs that a program there would see."""
        return sum(gpus.count for gpus in self.surveyed.gpus)

    @property
    def platforms(self) -> set[str]:
        """Platforms of the devices that JAX has there."""
        return {devices.platform for devices in self.devices.devices}


class SurveyResult(Value, kw_only=True):
    """Result of the survey.

    Args:
        hosts: the hosts that have answered.
        lost: why a host did not answer, or no longer does, by its name.
        seconds: time until all hosts were reached.
        ways: number of connections tried between hosts, of those that collectives would use.
        gaps: the connections that failed.
        uses: which implementation of collectives the ranks use; see `peers.get_collectives_kind`.

    """

    hosts: tuple[HostFound, ...]
    lost: dict[str, str]
    seconds: float
    ways: int = 0
    gaps: tuple[Gap, ...] = ()
    uses: str = ""


class Judgement(Value):
    """Finding of the check, with a verdict.

    Args:
        hosts: the names of the hosts that it is about; empty for the job as a whole.
        cure: advice; "" if there is none.

    """

    topic: str
    value: str
    hosts: tuple[str, ...] = ()
    verdict: Verdict = "ok"
    cure: str = ""


def merge_findings(findings: Iterable[Judgement]) -> list[Judgement]:
    """Merge equal findings about several hosts into one, at the place of the first."""
    same: dict[Judgement, list[str]] = {}
    for finding in findings:
        same.setdefault(finding.copy_with(hosts=()), []).extend(finding.hosts)
    return [finding.copy_with(hosts=tuple(hosts)) for finding, hosts in same.items()]


def list_topics(findings: Sequence[Judgement], verdict: Verdict) -> list[str]:
    """Return the topics that have a finding with this verdict, each once."""
    return list(dict.fromkeys(found.topic for found in findings if found.verdict == verdict))


def format_lines(findings: Sequence[Judgement], width: int) -> Iterator[str]:
    """Yield the findings as lines of this width; a long path stays whole, so that it can be copied.

    A finding that is ok and equal on all hosts does not name them. A cure shared by consecutive
    findings appears after the last of them.
    """
    of_topic = Counter(finding.topic for finding in findings)
    indent = " " * (_VERDICT_WIDTH + _TOPIC_WIDTH)
    for found, after in zip(findings, [*findings[1:], None], strict=True):
        begin = f"{found.verdict:<{_VERDICT_WIDTH}}{found.topic:<{_TOPIC_WIDTH}}"
        named = found.hosts and (found.verdict != "ok" or of_topic[found.topic] > 1)
        value = f"{format_names(found.hosts)}: {found.value}" if named else found.value
        cure = "" if after is not None and after.cure == found.cure else found.cure
        for text, head in (value, begin), (cure, f"{indent}- "):
            yield from textwrap.wrap(
                escape_unprintable(text),
                width,
                initial_indent=head,
                subsequent_indent=" " * len(head),
                break_on_hyphens=False,
                break_long_words=False,
            )


def format_last_line(findings: Sequence[Judgement], of_what: str) -> str:
    """Return a line that says whether a job would work, with topics of errors and warnings."""
    wrong: dict[str, list[str]] = {
        "errors": list_topics(findings, "error"),
        "warnings": list_topics(findings, "warning"),
    }
    found = "; ".join(f"{kind}: {', '.join(names)}" for kind, names in wrong.items() if names)
    line = f"{'FAILED' if wrong['errors'] else 'passed'}: {of_what}"
    return f"{line} ({found})" if found else line


# --- judging: a function for each topic ---

Hosts = Sequence[HostFound]
Text = Callable[[HostFound], str]
Findings = Iterator[Judgement]

# Seconds; clocks farther apart make files and logs of several hosts misleading.
_CLOCK_S = 1.0
# A host whose load is above this share of its cores slows the whole job down.
_BUSY = 0.5
# A GPU with a smaller share of free memory is in use by another program.
_MOSTLY = 0.5
# A GPU with less memory than this drives a laptop's screen, and JAX need not use it.
_LEAST_KIB = 4 << 20
# NCCL needs some 10 MB of /dev/shm for each pair of GPUs; Docker's default is 64 MB.
_LEAST_SHM_KIB = 1 << 20
# Oldest major version of the driver, from JAX's installation guide.
_DRIVERS = {"cuda12": 525, "cuda13": 580}
_PLUGIN = re.compile(r"jax-((?:cuda|rocm)\d{1,4})-(?:plugin|pjrt)")
# The part of a version after its numbers.
_NOT_NUMBERS = re.compile(r"\.?[^\d.].*")


def judge(found: SurveyResult) -> Findings:
    """Yield findings that need no devices; an error among them keeps the sum from being run."""
    yield from _judge_reach(found)
    yield from _judge_refusals(found.hosts)
    yield from _judge_python(found.hosts)
    with_jax = [host for host in found.hosts if not host.python.error]
    yield from _judge_jax(with_jax)
    yield from judge_plugins(with_jax)
    yield from judge_each("cores", found.hosts, lambda host: str(host.surveyed.cores or ""))
    yield from _judge_memory(found.hosts)
    yield from _judge_load(found.hosts)
    yield from _judge_clocks(found.hosts)
    yield from _judge_network([host for host in found.hosts if host.interface is not None])
    yield from _judge_ports(found)


def _judge_reach(found: SurveyResult) -> Findings:
    """Judge which hosts were reached; lost hosts share a finding if their reasons are equal."""
    same = group_by_key((why.replace(name, "{host}"), name) for name, why in found.lost.items())
    for lost in same.values():
        yield Judgement("hosts", found.lost[lost[0]], tuple(lost), "error")
    well = sum(host.name not in found.lost for host in found.hosts)
    many = len({*found.lost, *(host.name for host in found.hosts)})
    if well:
        yield Judgement("hosts", f"{well} of {many} reached in {found.seconds:.1f} s")


def _judge_refusals(hosts: Hosts) -> Findings:
    """Yield the reasons why ranks cannot be started on a host, apart from their Python."""
    return judge_each("start", hosts, lambda host: host.surveyed.refused, "error")


def _judge_python(hosts: Hosts) -> Findings:
    for host in hosts:
        if host.python.error:
            text = f"{host.python.path} {host.python.error}".strip()
            cure = "install it, or choose another with --python or python= in the hosts file"
            yield Judgement(
                "python", text, (host.name,), "error", cure if host.python.version else ""
            )
    well = [host for host in hosts if not host.python.error]
    yield from compare_hosts("python", well, lambda host: host.python.version)
    yield from judge_each("interpreter", well, lambda host: host.python.path)


def _judge_jax(hosts: Hosts) -> Findings:
    def format_versions(host: HostFound) -> str:
        packages = host.python.packages
        return f"{packages['jax']}, jaxlib {packages.get('jaxlib', 'is missing')}"

    cure = "install the same version on all hosts: otherwise ranks may wait in vain for 300 s"
    yield from compare_hosts("jax", hosts, format_versions, "error", cure)
    yield from judge_each(
        "jax", hosts, lambda host: explain_old_jax(host.python.packages["jax"]), "error"
    )


def _judge_memory(hosts: Hosts) -> Findings:
    if known := [host for host in hosts if host.surveyed.memory_kib]:
        free = format_gib(host.surveyed.free_kib for host in known)
        whole = format_gib(host.surveyed.memory_kib for host in known)
        yield Judgement("memory", f"{free} of {whole} GiB free", list_names(known))


def _judge_load(hosts: Hosts) -> Findings:
    busy = [host for host in hosts if 0 < host.surveyed.cores * _BUSY < host.surveyed.load]
    if busy:
        text = f"{format_span(host.surveyed.load for host in busy)} in the last minute"
        cure = "other programs run there: the slowest rank sets the pace"
        yield Judgement("load", text, list_names(busy), "warning", cure)


def _judge_clocks(hosts: Hosts) -> Findings:
    def format_offset(host: HostFound) -> str:
        side = "ahead of" if host.ahead_s > 0 else "behind"
        return f"{abs(host.ahead_s):.1f} s {side} the launcher's"

    wrong = [host for host in hosts if abs(host.ahead_s) > _CLOCK_S]
    yield from judge_each("clock", wrong, format_offset, "warning", "is NTP running there?")
    if well := [host for host in hosts if host not in wrong]:
        most = max(0.01, *(abs(host.ahead_s) for host in well))
        yield Judgement("clock", f"within {most:.2f} s of the launcher's", list_names(well))


def _judge_network(hosts: Hosts) -> Findings:
    """Judge the interfaces that face other machines."""

    def format_speed(host: HostFound) -> str:
        assert host.interface is not None
        speed = f", {host.interface.mbit_s / 1000:g} Gbit/s" if host.interface.mbit_s else ""
        return f"MTU {host.interface.mtu or 'unknown'}{speed}"

    cure = "give all hosts the same MTU and speed: large packets may be lost if the MTU differs"
    yield from judge_each(
        "interface", hosts, lambda host: host.interface.name if host.interface else ""
    )
    yield from compare_hosts("network", hosts, format_speed, cure=cure)


def _judge_ports(found: SurveyResult) -> Findings:
    """Judge the connections between hosts that collectives use; name hosts that cannot connect."""
    if found.ways and not found.gaps:
        yield Judgement(
            "ports", f"all hosts reach one another ({format_count(found.ways, 'connection')})"
        )
    for gap in found.gaps:
        text = f"cannot reach {gap.peer}{gap.where}"
        yield Judgement("ports", text, (gap.host,), "error", format_remedy(found.uses))


def judge_mtls(job: Job, hosts: Hosts, *, alone: bool) -> Findings:
    """Judge whether only processes of the job can join at the coordinator's port.

    Args:
        job: the job to be run.
        hosts: the hosts that have jax.
        alone: True if the job has only one host.

    """
    if not hosts:
        return
    if job.mtls == "off" and job.hook and alone and job.coordinator is None:
        yield Judgement("mtls", "not needed: the coordinator has a private socket, and no port")
        return
    why = job.mtls_reason or "--mtls off"
    if job.mtls != "off":
        why = explain_missing_tls({host.name: host.python.packages["jax"] for host in hosts})
    if why:
        cure = "any process that reaches the coordinator's port can end the job"
        yield Judgement("mtls", f"not used: {why}", verdict="note", cure=cure)
    else:
        yield Judgement("mtls", "only processes of the job can join it")


# --- judgements that need JAX's devices ---


def judge_devices(hosts: Hosts) -> Findings:
    """Judge the devices that JAX uses."""
    yield from judge_each("devices", hosts, lambda host: host.devices.error, "error")
    # Compare only hosts with equally many ranks: with more ranks a host may have more devices.
    for ranks in dict.fromkeys(host.ranks for host in hosts):
        known = [host for host in hosts if host.ranks == ranks and host.devices.devices]
        yield from compare_hosts(
            "devices", known, lambda host: _format_devices(host.devices.devices)
        )
    yield from _judge_tpus(hosts)


def _format_devices(devices: tuple[DeviceCount, ...]) -> str:
    """Return device counts as text, like `2 cpu` or `8 NVIDIA H100 80GB HBM3`."""
    return ", ".join(f"{each.count} {each.kind or each.platform}" for each in devices)


def _judge_tpus(hosts: Hosts) -> Findings:
    """Judge the chips of TPU hosts, as the hosts count them."""

    def format_chips(host: HostFound) -> str:
        tpu = host.surveyed.facts.tpu
        return f"{format_count(tpu.chips, 'chip')} ({tpu.model})" if tpu is not None else ""

    yield from compare_hosts("tpu", hosts, format_chips)
    unused = [host for host in hosts if format_chips(host) and host.platforms == {"cpu"}]
    cure = "is a jax for TPUs installed (jax[tpu]), or JAX_PLATFORMS or -d set?"
    yield from judge_each("tpu", unused, lambda host: "JAX uses the CPU", "warning", cure)
    if part := format_slice_part_note(host.surveyed.facts.tpu for host in hosts):
        yield Judgement("tpu", part, verdict="warning")


# --- GPUs: requirements of a host before its first job ---


def judge_plugins(hosts: Hosts) -> Findings:
    """Judge the packages that let jax use accelerators, and NCCL if there are GPUs."""
    any_gpus = any(host.gpus for host in hosts)

    def format_plugins(host: HostFound) -> str:
        packages = host.python.packages
        # Most plugins consist of two packages with the same version.
        parts = {name.replace("-plugin", "-pjrt") for name in packages if name.endswith("-plugin")}
        return ", ".join(
            f"{name} {packages[name]}"
            for name in sorted(packages.keys() - parts - {"jax", "jaxlib"})
            if any_gpus or not name.startswith("nvidia-nccl-")  # another package has installed it
        )

    yield from compare_hosts("plugins", hosts, format_plugins)
    for host in hosts:
        cure = f'{_format_install_command(host)}=={host.python.packages["jax"]}"'
        yield from judge_each("plugins", [host], _describe_unfit_plugins, "warning", cure)


def judge_gpus(hosts: Hosts) -> Findings:
    """Judge everything about GPUs; without GPUs, report only variables that hide them."""
    large = [host for host in hosts if host.gpus and not _are_small(host)]
    yield from compare_hosts("gpus", hosts, _format_gpus)
    for host in large:
        yield from _judge_unused_gpus(host)
    cure = "install a newer driver, or CUDA's packages for forward compatibility"
    yield from judge_each("gpus", large, _describe_old_driver, "warning", cure)
    yield from _judge_gpu_memory(hosts)
    yield from judge_each("gpu memory", large, _describe_gpus_in_use, "warning")
    yield from judge_each("shares", hosts, _describe_sharing)
    yield from judge_each("shares", hosts, lambda host: host.share.uneven, "warning")
    yield from _judge_shared_memory(
        [host for host in hosts if host.gpus > 1 and host.surveyed.shm_kib]
    )


def _describe_unfit_plugins(host: HostFound) -> str:
    """Return the plugins that jaxlib will not use, because their version numbers differ.

    The rule is that of jaxlib's plugin_support. Plugins for ROCm have versions of their own.
    """
    jaxlib = host.python.packages.get("jaxlib", "")
    unfit = [
        f"{name} {version}"
        for name, version in sorted(host.python.packages.items())
        if _parse_kind(name).startswith("cuda")
        and _strip_version_suffix(version) != _strip_version_suffix(jaxlib)
    ]
    return f"{', '.join(unfit)} not used, because jaxlib is {jaxlib}" if jaxlib and unfit else ""


def _strip_version_suffix(version: str) -> str:
    return _NOT_NUMBERS.sub("", version)


def _parse_kind(package: str) -> str:
    """Return a plugin's kind, like `cuda12` for jax-cuda12-plugin; "" for other packages."""
    found = _PLUGIN.fullmatch(package)
    return found[1] if found else ""


def _format_install_command(host: HostFound) -> str:
    """Return the beginning of the command that installs the plugin for a host's GPUs."""
    amd = any("AMD" in gpu.name or "Radeon" in gpu.name for gpu in host.surveyed.gpus)
    found = [
        kind for name in host.python.packages if (kind := _parse_kind(name)).startswith("cuda")
    ]
    extra = "rocm7-local" if amd else max(found, default="cuda12")  # runs with most drivers
    return f'{host.python.path} -m pip install "jax[{extra}]'


def _format_gpus(host: HostFound) -> str:
    return "; ".join(
        f"{gpus.count} {gpus.name}{gpus.driver and f', driver {gpus.driver}'}"
        for gpus in host.surveyed.gpus
    )


def _are_small(host: HostFound) -> bool:
    memory = host.surveyed.gpu_memory
    return bool(memory) and all(gpu.memory_kib < _LEAST_KIB for gpu in memory)


def _judge_unused_gpus(host: HostFound) -> Findings:
    """Report that JAX uses none of a host's GPUs, and why."""
    if host.python.error or host.platforms - {"cpu"}:
        return
    text, cure = f"{format_count(host.gpus, 'GPU')}, and JAX uses the CPU", ""
    if host.surveyed.facts.platforms == "cpu":
        text += ": JAX_PLATFORMS=cpu is set there"
    elif not any(map(_parse_kind, host.python.packages)):
        text += ": jax has no plugin for them"
        cure = f'{_format_install_command(host)}"'
    elif host.platforms:
        cure = f"`{host.python.path} -c 'import jax; jax.devices(\"gpu\")'` shows why"
    else:
        return
    yield Judgement("gpus", text, (host.name,), "warning", cure)


def _describe_old_driver(host: HostFound) -> str:
    """Return the driver that is too old for the plugin's CUDA; "" if it is new enough."""
    kinds = {_parse_kind(name) for name in host.python.packages} & _DRIVERS.keys()
    for kind, driver in {(kind, gpu.driver) for kind in kinds for gpu in host.surveyed.gpus}:
        major = driver.partition(".")[0]
        if major.isdecimal() and int(major) < _DRIVERS[kind]:
            return f"driver {driver} is older than {_DRIVERS[kind]}, which jax[{kind}] needs"
    return ""


def _judge_gpu_memory(hosts: Hosts) -> Findings:
    if known := [host for host in hosts if host.surveyed.gpu_memory]:
        memory = [gpu for host in known for gpu in host.surveyed.gpu_memory]
        free, whole = (
            format_gib(gpu.free_kib for gpu in memory),
            format_gib(gpu.memory_kib for gpu in memory),
        )
        yield Judgement("gpu memory", f"{free} of {whole} GiB free on each", list_names(known))


def _describe_gpus_in_use(host: HostFound) -> str:
    """Return the GPUs whose memory other programs mostly hold; "" if there are none."""
    memory = host.surveyed.gpu_memory
    taken = [gpu for gpu in memory if gpu.free_kib < gpu.memory_kib * _MOSTLY]
    if not taken:
        return ""
    held = format_gib(gpu.memory_kib - gpu.free_kib for gpu in taken)
    which = f"GPU{'s' if len(taken) > 1 else ''} {format_ranges(gpu.number for gpu in taken)}"
    return f"other programs hold {held} GiB of {which}, of which JAX takes 75% at its start"


def _describe_sharing(host: HostFound) -> str:
    """Return words for ranks' sharing of GPUs; "" without GPUs, unless variables hide them."""
    concerned = host.gpus or "_VISIBLE_DEVICES=" in host.share.words
    return host.share.words if concerned else ""


def _judge_shared_memory(hosts: Hosts) -> Findings:
    """Judge the free part of /dev/shm, which NCCL needs, on these hosts (with several GPUs)."""

    def describe_shortage(host: HostFound) -> str:
        free, whole = host.surveyed.shm_free_kib, host.surveyed.shm_kib
        if free >= _LEAST_SHM_KIB:
            return ""
        return f"{free >> 10} of {whole >> 10} MiB of /dev/shm free, too little for NCCL"

    if well := [host for host in hosts if not describe_shortage(host)]:
        free = format_gib(host.surveyed.shm_free_kib for host in well)
        yield Judgement("shm", f"{free} GiB of /dev/shm free", list_names(well))
    cure = "`ls -l /dev/shm` lists what is there; in Docker use --shm-size=8g or --ipc=host, "
    cure += "in Kubernetes an emptyDir with `medium: Memory` there"
    yield from judge_each("shm", hosts, describe_shortage, "warning", cure)


# --- the sum ---


def judge_internals(ranks: Sequence[tuple[str, ProbeOutput]]) -> Findings:
    """Judge how many of JAX's internals the hook has found on each host.

    Args:
        ranks: the host of each rank, and what its probe printed.

    """
    cure = "another version of jax may have them, or a newer mcjax-launch may not need them"
    for host, told in dict(ranks).items():
        if found := told.get("internals"):
            count, missing = found["count"], found["missing"]
            text = f"{count - len(missing)} of {count} of JAX's internals are found"
            yield Judgement("hook", text, (host,), "warning" if missing else "ok")
            for lost in dict.fromkeys(missing.values()):
                names = ", ".join(name for name in missing if missing[name] == lost)
                yield Judgement("hook", f"without {names}: {lost}", (host,), "warning", cure)


def judge_sum(ranks: Sequence[ProbeOutput], why_not: str) -> Findings:
    """Judge the result of the test sum that the probes compute over all ranks' devices.

    Args:
        ranks: what each rank's probe printed.
        why_not: how the job ended, unless it succeeded.

    """
    complete = bool(ranks) and all("sums" in told for told in ranks)
    if complete:
        yield from _judge_results(ranks)
    if why_not or not complete:
        why_not = why_not or "not all ranks have reported their results"
        yield Judgement("sum", why_not, verdict="error")


def _judge_results(ranks: Sequence[ProbeOutput]) -> Findings:
    def format_slowest(name: str) -> str:
        return f"{max(told[name] for told in ranks):.1f} s"

    imported, found = format_slowest("import_s"), format_slowest("devices_s")
    took = f"`import jax` took {imported}, jax.devices() {found}"
    where = f"joined at {ranks[0]['coordinator']} in {format_slowest('initialize_s')}"
    yield Judgement("initialize", f"{format_count(len(ranks), 'rank')} {where} ({took})")
    slices = [told["slice"] for told in ranks]
    yield Judgement("slices", format_slices(slices))
    if len(set(slices)) > 1:
        yield Judgement("slices", "jax.make_mesh accepts only one", verdict="note")
    first, little, much = ranks[0]["sums"]
    text = f"{first['values'][0]} over {format_count(first['devices'], 'device')}"
    yield Judgement("sum", f"{text}, in {format_slowest('first_s')}")
    for result in [result for told in ranks for result in told["sums"]]:
        expected = result["devices"] * (result["devices"] + 1) // 2
        for value in set(result["values"]) - {expected}:
            text = f"{value} over {format_count(result['devices'], 'device')}, not {expected}"
            yield Judgement("sum", f"{text}, of {result['size']} bytes each", verdict="error")
    if much["devices"] > 1:
        text = f"1 KB in {1e3 * little['seconds']:.2f} ms, {much['size'] >> 20} MB in "
        text += f"{1e3 * much['seconds']:.0f} ms ({much['size'] / much['seconds'] / 1e9:.2f} GB/s)"
        yield Judgement("speed", f"{text}, from each of {much['devices']} devices")


# --- the same judgement of several hosts ---


def judge_each(
    topic: str, hosts: Hosts, value: Text, verdict: Verdict = "ok", cure: str = ""
) -> Findings:
    """Yield a finding for each host for which `value` returns text."""
    for host in hosts:
        if text := value(host):
            yield Judgement(topic, text, (host.name,), verdict, cure)


def compare_hosts(
    topic: str, hosts: Hosts, value: Text, verdict: Verdict = "warning", cure: str = ""
) -> Findings:
    """Yield a finding for each host: ok if its value is the most frequent, else `verdict`."""
    usual, _ = Counter(map(value, hosts)).most_common(1)[0] if hosts else ("", 0)
    for host in hosts:
        text = value(host) or "none"
        if value(host) != usual:
            text = f"{text}; elsewhere {usual or 'none'}"
            yield Judgement(topic, text, (host.name,), verdict, cure)
        elif usual:
            yield Judgement(topic, text, (host.name,))


def list_names(hosts: Iterable[HostFound]) -> tuple[str, ...]:
    """Return the names of these hosts."""
    return tuple(host.name for host in hosts)


def format_span(numbers: Iterable[float]) -> str:
    """Format numbers as `1.5` or `0.5-2.0`."""
    texts = [f"{number:.1f}" for number in sorted(numbers)]
    return texts[0] if texts[0] == texts[-1] else f"{texts[0]}-{texts[-1]}"


def format_gib(sizes_kib: Iterable[int]) -> str:
    """Format sizes in GiB, as `1.5` or `0.5-2.0`."""
    return format_span(size / (1 << 20) for size in sizes_kib)

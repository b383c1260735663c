"""Judgements of what ranks print as ok, note, warning or error: a function per topic; pure."""

from __future__ import annotations

import math
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from mcjax_launch.job.job import Job
from mcjax_launch.job.mutual_tls import explain_missing_tls
from mcjax_launch.machine.interpreter import explain_old_jax
from mcjax_launch.ranks import format_count, format_ranges, format_slices, group_by_key
from mcjax_launch.wire.value import Value
from mcjax_launch.wording import escape_unprintable, format_names

ProbeOutput = dict[str, Any]

# --- findings, and their lines ---

Verdict = Literal["ok", "note", "warning", "error"]
_VERDICT_WIDTH, _TOPIC_WIDTH = 9, 13


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

Hosts = Mapping[str, ProbeOutput]  # what the ranks of each host have printed, by the host's name
Text = Callable[[ProbeOutput], str]
Pair = Sequence[int]
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
# The first Python by which programs are recorded, with sys.monitoring.
_RECORDS_FROM = (3, 12)
# The part of a version after its numbers.
_NOT_NUMBERS = re.compile(r"\.?[^\d.].*")


def judge_reach(reasons: Mapping[str, str], answered: Sequence[str]) -> Findings:
    """Judge which hosts are ready for their ranks; hosts that fail alike share a finding.

    Args:
        reasons: why a host was not reached, or cannot run its ranks, by its name.
        answered: names of the other hosts.

    """
    same = group_by_key((why.replace(name, "{host}"), name) for name, why in reasons.items())
    for failed in same.values():
        yield Judgement("hosts", reasons[failed[0]], tuple(failed), "error")
    if answered:
        yield Judgement("hosts", f"{len(answered)} of {len(answered) + len(reasons)} ready")


def judge_silence(hosts: Sequence[str]) -> Findings:
    """Judge hosts whose ranks ended before they had reported, as when another rank fails."""
    if hosts:
        value = "its ranks ended before they had reported anything"
        cure = "correct the other errors, and check again"
        yield Judgement("hosts", value, tuple(hosts), "error", cure)


def judge_hosts(hosts: Hosts) -> Findings:
    """Judge what the ranks' Python finds on each host."""
    cure = "make it, or choose another with -C or chdir="
    yield from judge_each("start", hosts, _describe_missing_folder, "error", cure)
    yield from compare_hosts("python", hosts, lambda told: told["python"])
    yield from judge_each("interpreter", hosts, lambda told: told["interpreter"])
    cure = "install the same version on all hosts: otherwise ranks may wait in vain for 300 s"
    yield from compare_hosts("jax", hosts, _format_jax, "error", cure)
    yield from judge_each(
        "jax", hosts, lambda told: explain_old_jax(told["packages"].get("jax", "")), "error"
    )
    yield from _judge_plugins(hosts)
    yield from judge_each("cores", hosts, lambda told: str(told.get("cores", "")))
    sizes = {name: [told["memory_kib"]] for name, told in _select(hosts, "memory_kib").items()}
    yield from _judge_sizes("memory", sizes, "free")
    yield from _judge_load(hosts)
    yield from _judge_clocks(hosts)
    # Compare only hosts with equally many ranks: with more ranks a host may have more devices.
    for ranks in dict.fromkeys(told["ranks"] for told in hosts.values()):
        alike = {name: told for name, told in hosts.items() if told["ranks"] == ranks}
        yield from compare_hosts("devices", _select(alike, "devices"), _format_devices)


def _select(hosts: Hosts, name: str) -> Hosts:
    """Return the hosts that have told something, such as their devices."""
    return {host: told for host, told in hosts.items() if told.get(name)}


def judge_program(hosts: Hosts, name: str, folders: Mapping[str, str]) -> Findings:
    """Judge the hosts' copies of PROGRAM, which is `name` in the folder of each host."""
    copies = {host: told.get("sources", {}).get(folders[host]) for host, told in hosts.items()}
    for host, copy in copies.items():
        if not copy:
            cure = f"copy it there, or start the job with --sync {name}"
            yield Judgement("program", f"{name} is not in {folders[host]}", (host,), "error", cure)
    found = {host: {"copy": copy} for host, copy in copies.items() if copy}
    cure = "make them equal, or start the job with --sync: ranks would run different programs"
    yield from compare_hosts(
        "program", found, lambda told: f"{name}, SHA-256 {told['copy'][:12]}", "error", cure
    )


def _describe_missing_folder(told: ProbeOutput) -> str:
    missing = told["folder"] in told.get("missing", ())
    return f"{told['folder']}: no such directory" if missing else ""


def _format_jax(told: ProbeOutput) -> str:
    packages = told["packages"]
    return f"{packages.get('jax', 'none')}, jaxlib {packages.get('jaxlib', 'is missing')}"


def _judge_load(hosts: Hosts) -> Findings:
    busy = {
        name: told["load"]
        for name, told in hosts.items()
        if told.get("load", 0) > told.get("cores", math.inf) * _BUSY
    }
    if busy:
        cure = "other programs run there: the slowest rank sets the pace"
        text = f"{format_span(busy.values())} in the last minute"
        yield Judgement("load", text, tuple(busy), "warning", cure)


def _judge_clocks(hosts: Hosts) -> Findings:
    def format_offset(told: ProbeOutput) -> str:
        low, high = told["ahead_s"]
        if low > _CLOCK_S:
            return f"at least {low:.1f} s ahead of the launcher's"
        return f"at least {-high:.1f} s behind the launcher's" if high < -_CLOCK_S else ""

    known = _select(hosts, "ahead_s")
    yield from judge_each("clock", known, format_offset, "warning", "is NTP running there?")
    if well := [name for name, told in known.items() if not format_offset(told)]:
        most = max(abs(bound) for name in well for bound in known[name]["ahead_s"])
        yield Judgement("clock", f"within {most:.2f} s of the launcher's", tuple(well))


def _format_devices(told: ProbeOutput) -> str:
    """Return device counts as text, like `2 cpu` or `8 NVIDIA H100 80GB HBM3`."""
    return ", ".join(f"{count} {kind or platform}" for platform, kind, count in told["devices"])


def _judge_sizes(topic: str, sizes: Mapping[str, Sequence[Pair]], words: str) -> Findings:
    """Tell the free and whole sizes, in KiB, of the hosts that know them."""
    if known := {name: pairs for name, pairs in sizes.items() if pairs}:
        free, whole = (
            format_gib(pair[at] for pairs in known.values() for pair in pairs) for at in (0, 1)
        )
        yield Judgement(topic, f"{free} of {whole} GiB {words}", tuple(known))


# --- GPUs: requirements of a host before its first job ---


def _judge_plugins(hosts: Hosts) -> Findings:
    """Judge the packages that let jax use accelerators, and NCCL if there are GPUs."""
    any_gpus = bool(_select(hosts, "gpus"))

    def format_plugins(told: ProbeOutput) -> str:
        packages = told["packages"]
        # Most plugins consist of two packages with the same version.
        parts = {name.replace("-plugin", "-pjrt") for name in packages if name.endswith("-plugin")}
        return ", ".join(
            f"{name} {packages[name]}"
            for name in sorted(packages.keys() - parts - {"jax", "jaxlib"})
            if any_gpus or not name.startswith("nvidia-nccl-")  # another package has installed it
        )

    yield from compare_hosts("plugins", hosts, format_plugins)
    for name, told in hosts.items():
        cure = f'{_format_install_command(told)}=={told["packages"].get("jax")}"'
        yield from judge_each("plugins", {name: told}, _describe_unfit_plugins, "warning", cure)


def _describe_unfit_plugins(told: ProbeOutput) -> str:
    """Return the plugins that jaxlib will not use, because their version numbers differ.

    The rule is that of jaxlib's plugin_support. Plugins for ROCm have versions of their own.
    """
    jaxlib = told["packages"].get("jaxlib", "")
    unfit = [
        f"{name} {version}"
        for name, version in sorted(told["packages"].items())
        if _parse_kind(name).startswith("cuda")
        and _NOT_NUMBERS.sub("", version) != _NOT_NUMBERS.sub("", jaxlib)
    ]
    return f"{', '.join(unfit)} not used, because jaxlib is {jaxlib}" if jaxlib and unfit else ""


def _parse_kind(package: str) -> str:
    """Return a plugin's kind, like `cuda12` for jax-cuda12-plugin; "" for other packages."""
    found = _PLUGIN.fullmatch(package)
    return found[1] if found else ""


def _format_install_command(told: ProbeOutput) -> str:
    """Return the beginning of the command that installs the plugin for a host's GPUs."""
    kinds = [kind for name in told["packages"] if (kind := _parse_kind(name)).startswith("cuda")]
    is_amd = any("AMD" in name for _, name, *_ in told.get("gpus", ()))
    extra = "rocm7-local" if is_amd else max(kinds, default="cuda12")  # runs with most drivers
    return f'{told["interpreter"]} -m pip install "jax[{extra}]'


def judge_gpus(hosts: Hosts) -> Findings:
    """Judge everything about GPUs."""
    with_gpus = _select(hosts, "gpus")
    large = {name: told for name, told in with_gpus.items() if not _are_small(told)}
    if with_gpus:
        yield from compare_hosts("gpus", hosts, _format_gpus)
    for name, told in large.items():
        yield from _judge_unused_gpus(name, told)
    cure = "install a newer driver, or CUDA's packages for forward compatibility"
    yield from judge_each("gpus", large, _describe_old_driver, "warning", cure)
    sizes = {name: _list_gpu_memory(told) for name, told in with_gpus.items()}
    yield from _judge_sizes("gpu memory", sizes, "free on each")
    yield from judge_each("gpu memory", large, _describe_gpus_in_use, "warning")
    yield from judge_each("shares", hosts, lambda told: told.get("shared", ""), "warning")
    several = {name: told for name, told in with_gpus.items() if len(told["gpus"]) > 1}
    cure = "`ls -l /dev/shm` lists what is there; in Docker use --shm-size=8g or --ipc=host, "
    cure += "in Kubernetes an emptyDir with `medium: Memory` there"
    yield from judge_each("shm", several, _describe_shortage, "warning", cure)


def _list_gpu_memory(told: ProbeOutput) -> list[Pair]:
    """Return free and whole memory of each GPU; [] if any are unknown."""
    sizes: list[Pair] = [memory for _, _, _, *memory in told["gpus"]]
    return sizes if all(sizes) else []


def _are_small(told: ProbeOutput) -> bool:
    memory = _list_gpu_memory(told)
    return bool(memory) and all(whole < _LEAST_KIB for _, whole in memory)


def _format_gpus(told: ProbeOutput) -> str:
    counts = Counter((name, driver) for _, name, driver, *_ in told.get("gpus", ()))
    return "; ".join(
        f"{count} {name}{driver and f', driver {driver}'}"
        for (name, driver), count in counts.items()
    )


def _judge_unused_gpus(host: str, told: ProbeOutput) -> Findings:
    """Report that JAX uses none of a host's GPUs, and why."""
    if {platform for platform, _, _ in told.get("devices", ())} != {"cpu"}:
        return
    text, cure = f"{format_count(len(told['gpus']), 'GPU')}, and JAX uses the CPU", ""
    if told["platforms"] == "cpu":
        text += ": JAX_PLATFORMS=cpu is set there"
    elif not any(map(_parse_kind, told["packages"])):
        text += ": jax has no plugin for them"
        cure = f'{_format_install_command(told)}"'
    else:
        cure = f"`{told['interpreter']} -c 'import jax; jax.devices(\"gpu\")'` shows why"
    yield Judgement("gpus", text, (host,), "warning", cure)


def _describe_old_driver(told: ProbeOutput) -> str:
    """Return the driver that is too old for the plugin's CUDA; "" if it is new enough."""
    kinds = {_parse_kind(name) for name in told["packages"]} & _DRIVERS.keys()
    drivers = {driver for _, _, driver, *_ in told["gpus"]}
    for kind, driver in {(kind, driver) for kind in kinds for driver in drivers}:
        major = driver.partition(".")[0]
        if major.isdecimal() and int(major) < _DRIVERS[kind]:
            return f"driver {driver} is older than {_DRIVERS[kind]}, which jax[{kind}] needs"
    return ""


def _describe_gpus_in_use(told: ProbeOutput) -> str:
    """Return the GPUs whose memory other programs mostly hold; "" if there are none."""
    held = {
        gpu[0]: whole - free
        for gpu, (free, whole) in zip(told["gpus"], _list_gpu_memory(told), strict=False)
        if free < whole * _MOSTLY
    }
    if not held:
        return ""
    which = f"GPU{'s' if len(held) > 1 else ''} {format_ranges(held)}"
    sizes = format_gib(held.values())
    return f"other programs hold {sizes} GiB of {which}, of which JAX takes 75% at its start"


def _describe_shortage(told: ProbeOutput) -> str:
    """Return how little of /dev/shm is free, which NCCL needs; "" if it is enough."""
    free, whole = told.get("shm_kib", (_LEAST_SHM_KIB, 0))
    if free >= _LEAST_SHM_KIB:
        return ""
    return f"{free >> 10} of {whole >> 10} MiB of /dev/shm free, too little for NCCL"


# --- the job ---


def judge_mtls(job: Job, hosts: Hosts) -> Findings:
    """Judge whether only processes of the job can join at the coordinator's port."""
    if job.mtls == "off" and job.hook and len(hosts) == 1 and job.coordinator is None:
        yield Judgement("mtls", "not needed: the coordinator has a private socket, and no port")
        return
    why = job.mtls_reason or "--mtls off"
    if job.mtls != "off":
        why = explain_missing_tls(
            {name: told["packages"].get("jax", "") for name, told in hosts.items()}
        )
    if why:
        cure = "any process that reaches the coordinator's port can end the job"
        yield Judgement("mtls", f"not used: {why}", verdict="note", cure=cure)
    else:
        yield Judgement("mtls", "only processes of the job can join it")


# --- the sum ---


def judge_internals(hosts: Hosts) -> Findings:
    """Judge how many of JAX's internals the hook has found on each host."""
    cure = "another version of jax may have them, or a newer mcjax-launch may not need them"
    for host, told in hosts.items():
        if found := told.get("internals"):
            count, missing = found["count"], found["missing"]
            text = f"{count - len(missing)} of {count} of JAX's internals are found"
            yield Judgement("hook", text, (host,), "warning" if missing else "ok")
            for lost in dict.fromkeys(missing.values()):
                names = ", ".join(name for name in missing if missing[name] == lost)
                yield Judgement("hook", f"without {names}: {lost}", (host,), "warning", cure)


def judge_record(hosts: Hosts) -> Findings:
    """Judge whether each host's Python shows which programs a rank runs."""
    cure = "a rank that skips, repeats or reorders programs which it has run before goes unnoticed"
    yield from judge_each("record", hosts, _describe_old_python, "note", cure)


def _describe_old_python(told: ProbeOutput) -> str:
    if tuple(map(int, told["python"].split(".")[:2])) >= _RECORDS_FROM:
        return ""
    return f"nothing is recorded: Python {told['python']} is older than 3.12"


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
        waits = bool(ranks) and all("devices" in told and "sums" not in told for told in ranks)
        cure = "all ranks had joined: do firewalls pass all ports between the hosts?"
        yield Judgement("sum", why_not, verdict="error", cure=cure if waits else "")


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
    for name, told in hosts.items():
        if text := value(told):
            yield Judgement(topic, text, (name,), verdict, cure)


def compare_hosts(
    topic: str, hosts: Hosts, value: Text, verdict: Verdict = "warning", cure: str = ""
) -> Findings:
    """Yield a finding for each host: ok if its value is the most frequent, else `verdict`."""
    texts = {name: value(told) for name, told in hosts.items()}
    usual = Counter(texts.values()).most_common(1)[0][0] if texts else ""
    for name, text in texts.items():
        if text != usual:
            shown = f"{text or 'none'}; elsewhere {usual or 'none'}"
            yield Judgement(topic, shown, (name,), verdict, cure)
        elif usual:
            yield Judgement(topic, usual, (name,))


def format_span(numbers: Iterable[float]) -> str:
    """Format numbers as `1.5` or `0.5-2.0`."""
    texts = [f"{number:.1f}" for number in sorted(numbers)]
    return texts[0] if texts[0] == texts[-1] else f"{texts[0]}-{texts[-1]}"


def format_gib(sizes_kib: Iterable[int]) -> str:
    """Format sizes in GiB, as `1.5` or `0.5-2.0`."""
    return format_span(size / (1 << 20) for size in sizes_kib)

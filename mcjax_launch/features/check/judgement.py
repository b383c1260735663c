"""Judgements of what ranks print as ok, note, warning or error: a function per topic; pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from mcjax_launch.machine.interpreter import explain_old_jax
from mcjax_launch.ranks import format_count, group_by_key
from mcjax_launch.wire.value import Value
from mcjax_launch.wording import escape_unprintable, format_names

ProbeOutput = dict[str, Any]

# --- findings, and their lines ---

Verdict = Literal["ok", "warning", "error"]


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


def has_errors(findings: Iterable[Judgement]) -> bool:
    """Return whether a job would not work."""
    return any(finding.verdict == "error" for finding in findings)


def format_lines(findings: Sequence[Judgement]) -> Iterator[str]:
    """Yield the findings as lines.

    A finding that is ok and equal on all hosts does not name them. A cure shared by consecutive
    findings appears after the last of them.
    """
    of_topic = Counter(finding.topic for finding in findings)
    for found, after in zip(findings, [*findings[1:], None], strict=True):
        named = found.hosts and (found.verdict != "ok" or of_topic[found.topic] > 1)
        value = f"{format_names(found.hosts)}: {found.value}" if named else found.value
        yield escape_unprintable(f"{found.verdict:<8} {found.topic:<12} {value}")
        if found.cure and (after is None or after.cure != found.cure):
            yield f"{'':22}- {escape_unprintable(found.cure)}"


# --- judging: a function for each topic ---

Hosts = Mapping[str, ProbeOutput]  # what the ranks of each host have printed, by the host's name
Text = Callable[[ProbeOutput], str]
Findings = Iterator[Judgement]


def judge_reach(reasons: Mapping[str, str], answered: Sequence[str]) -> Findings:
    """Judge which hosts are ready for their ranks; hosts that fail alike share a finding.

    Args:
        reasons: why a host was not reached, or cannot run its ranks, by its name.
        answered: names of the other hosts.

    """
    same = group_by_key((why.replace(name, "{host}"), name) for name, why in reasons.items())
    for failed in same.values():
        yield Judgement("reach", reasons[failed[0]], tuple(failed), "error")
    if answered:
        yield Judgement("reach", f"{len(answered)} of {len(answered) + len(reasons)} ready")


def judge_silence(hosts: Sequence[str]) -> Findings:
    """Judge hosts whose ranks ended before they had reported, as when another rank fails."""
    if hosts:
        value = "its ranks ended before they had reported anything"
        cure = "correct the other errors, and check again"
        yield Judgement("reach", value, tuple(hosts), "error", cure)


def judge_folders(hosts: Hosts, chosen: Mapping[str, str]) -> Findings:
    """Judge whether each host has the working directory that the user has chosen for it."""
    for name, told in hosts.items():
        if chosen[name] and not told["has_folder"]:
            cure = "make it, or choose another with -C or chdir="
            value = f"{chosen[name]}: no such directory"
            yield Judgement("reach", value, (name,), "error", cure)


def judge_program(hosts: Hosts, program: str) -> Findings:
    """Judge the hosts' copies of PROGRAM, which has this name; "" for none."""
    copies = {name: told for name, told in hosts.items() if program and told["checksum"]}
    if missing := tuple(name for name in hosts if program and name not in copies):
        cure = f"copy it there, or start the job with --sync {program}"
        yield Judgement("reach", f"{program} is not there", missing, "error", cure)
    cure = "make them equal, or start the job with --sync: ranks would run different programs"
    yield from compare_hosts(
        "reach", copies, lambda told: f"{program}, SHA-256 {told['checksum'][:12]}", "error", cure
    )


def judge_hosts(hosts: Hosts) -> Findings:
    """Judge what the ranks' Python finds on each host."""
    if len({told["python"] for told in hosts.values()}) > 1:
        yield from compare_hosts("python", hosts, lambda told: f"{told['python']}")
    else:
        yield from judge_each("python", hosts, lambda told: f"{told['python']}, {told['path']}")
    cure = "install the same version on all hosts: otherwise ranks may wait in vain for 300 s"
    yield from compare_hosts("jax", hosts, _format_jax, "error", cure)
    yield from judge_each("jax", hosts, lambda told: explain_old_jax(told["jax"]), "error")
    cure = "another version of jax may have them, or a newer mcjax-launch may not need them"
    yield from judge_each("jax", hosts, _format_missing_internals, "warning", cure)
    # Compare only hosts with equally many ranks: with more ranks a host may have more devices.
    with_devices = {name: told for name, told in hosts.items() if told["devices"]}
    for ranks in dict.fromkeys(told["ranks"] for told in with_devices.values()):
        alike = {name: told for name, told in with_devices.items() if told["ranks"] == ranks}
        yield from compare_hosts("devices", alike, _format_devices)
    yield from judge_each("devices", hosts, _format_unused_gpus, "warning")


def _format_jax(told: ProbeOutput) -> str:
    return f"{told['jax'] or 'none'}, jaxlib {told['jaxlib'] or 'is missing'}"


def _format_missing_internals(told: ProbeOutput) -> str:
    """Return text on JAX's internals that the hook uses and a host's jax lacks."""
    names = group_by_key((lost, name) for name, lost in told.get("missing", {}).items())
    return "; ".join(f"without {', '.join(some)}: {lost}" for lost, some in names.items())


def _format_devices(told: ProbeOutput) -> str:
    """Return device counts as text, like `2 cpu` or `8 NVIDIA H100 80GB HBM3`."""
    return ", ".join(f"{count} {kind}" for kind, count in Counter[str](told["devices"]).items())


def _format_unused_gpus(told: ProbeOutput) -> str:
    return f"JAX uses the CPU, although there are GPUs: {told['why']}" if told["why"] else ""


# --- the sum ---


def judge_sum(ranks: Sequence[ProbeOutput], why_not: str) -> Findings:
    """Judge how the ranks have joined, and the sum that they have computed over all devices.

    Args:
        ranks: what each rank's probe printed.
        why_not: how the job ended, unless it succeeded.

    """
    joined = [told for told in ranks if "coordinator" in told]
    if ranks and len(joined) == len(ranks):
        imported, took, found = (
            f"{max(told[name] for told in ranks):.1f} s"
            for name in ("import_s", "initialize_s", "devices_s")
        )
        value = f"{format_count(len(ranks), 'rank')} joined at {ranks[0]['coordinator']} in {took}"
        detail = f"`import jax` took {imported}, jax.devices() {found}"
        yield Judgement("coordinator", f"{value} ({detail})")
    summed = [told for told in ranks if told.get("values")]
    if summed:
        count = summed[0]["count"]
        expected, where = count * (count + 1) // 2, f"over {format_count(count, 'device')}"
        if wrong := sorted({value for told in summed for value in told["values"]} - {expected}):
            values = ", ".join(map(str, wrong))
            yield Judgement("sum", f"{values} {where}, not {expected}", verdict="error")
        else:
            slowest = max(told["sum_s"] for told in summed)
            yield Judgement("sum", f"{expected} {where}, in {slowest:.1f} s")
    if why_not or len(summed) < len(ranks) or not ranks:
        why_not = why_not or "not all ranks have reported their results"
        waits = joined and len(joined) == len(ranks) and not summed
        cure = "all ranks had joined: do firewalls pass all ports between the hosts?"
        yield Judgement("sum", why_not, verdict="error", cure=cure if waits else "")


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

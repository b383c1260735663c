"""Judgements of what ranks print as ok, note, warning or error: a function per topic; pure."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from mcjax_launch.machine.interpreter import explain_old_jax
from mcjax_launch.ranks import format_count, group_by_key
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
_PLUGIN = re.compile(r"jax-((?:cuda|rocm)\d{1,4})-(?:plugin|pjrt)")


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
    yield from _judge_internals(hosts)
    yield from _judge_memory(_select(hosts, "memory_kib"))
    yield from _judge_clocks(hosts)
    # Compare only hosts with equally many ranks: with more ranks a host may have more devices.
    for ranks in dict.fromkeys(told["ranks"] for told in hosts.values()):
        alike = {name: told for name, told in hosts.items() if told["ranks"] == ranks}
        yield from compare_hosts("devices", _select(alike, "devices"), _format_devices)
    for name, told in _select(hosts, "gpus").items():
        yield from _judge_unused_gpus(name, told)


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


def _judge_memory(hosts: Hosts) -> Findings:
    """Tell the free and whole memory, in GiB, of the hosts that know them."""
    if hosts:
        free, whole = (
            format_gib(told["memory_kib"][at] for told in hosts.values()) for at in (0, 1)
        )
        yield Judgement("memory", f"{free} of {whole} GiB free", tuple(hosts))


def _judge_internals(hosts: Hosts) -> Findings:
    """Judge which of JAX's internals, which the hook uses, each host's jax lacks."""
    cure = "another version of jax may have them, or a newer mcjax-launch may not need them"
    for host, told in hosts.items():
        missing = told.get("missing_internals", {})
        for lost in dict.fromkeys(missing.values()):
            names = ", ".join(name for name in missing if missing[name] == lost)
            yield Judgement("jax", f"without {names}: {lost}", (host,), "warning", cure)


# --- GPUs that JAX does not use ---


def _parse_kind(package: str) -> str:
    """Return a plugin's kind, like `cuda12` for jax-cuda12-plugin; "" for other packages."""
    found = _PLUGIN.fullmatch(package)
    return found[1] if found else ""


def _format_install_command(told: ProbeOutput) -> str:
    """Return the beginning of the command that installs the plugin for a host's GPUs."""
    kinds = [kind for name in told["packages"] if (kind := _parse_kind(name)).startswith("cuda")]
    is_amd = any("AMD" in name for _, name, *_ in told.get("gpus", ()))
    extra = "rocm7-local" if is_amd else max(kinds, default="cuda13")
    return f'{told["interpreter"]} -m pip install "jax[{extra}]'


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
    yield Judgement("devices", text, (host,), "warning", cure)


# --- the sum ---


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
    first = ranks[0]["sums"][0]
    text = f"{first['values'][0]} over {format_count(first['devices'], 'device')}"
    yield Judgement("sum", f"{text}, in {format_slowest('first_s')}")
    for result in [result for told in ranks for result in told["sums"]]:
        expected = result["devices"] * (result["devices"] + 1) // 2
        for value in set(result["values"]) - {expected}:
            text = f"{value} over {format_count(result['devices'], 'device')}, not {expected}"
            yield Judgement("sum", f"{text}, of {result['size']} bytes each", verdict="error")


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

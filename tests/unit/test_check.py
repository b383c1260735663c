"""--check: what is taken for wrong, and how it reads."""

import re
from pathlib import Path
from typing import Any

import pytest

from mcjax_launch.check import probe, run
from mcjax_launch.check.judgement import (
    Judgement,
    format_last_line,
    format_lines,
    judge_hosts,
    judge_reach,
    judge_sum,
    merge_findings,
)
from mcjax_launch.check.run import make_check_job, merge_by_host, parse_output
from mcjax_launch.errors import HostsFailed
from mcjax_launch.job.hosts import Host
from mcjax_launch.job.job import Job

JAX = {"jax": "0.10.2", "jaxlib": "0.10.2"}
OLD = {"jax": "0.4.35", "jaxlib": "0.4.34"}
H100 = "NVIDIA H100 80GB HBM3"
PLUGIN = {"jax-cuda12-pjrt": "0.10.2", "jax-cuda12-plugin": "0.10.2"}
CUDA = {**JAX, **PLUGIN, "nvidia-nccl-cu12": "2.27.3"}
FIREWALL = "all ranks had joined: do firewalls pass all ports between the hosts?"

Host_ = tuple[str, dict[str, Any]]


def host(name: str, **more: Any) -> Host_:
    """What ranks of a host print on which all is well, but for what is said of it."""
    told = {
        "python": "3.11.2",
        "interpreter": "/p",
        "platforms": "",
        "packages": JAX,
        "memory_kib": [61 << 20, 64 << 20],
        "ahead_s": (-0.01, 0.01),
        "devices": [("cpu", "cpu", 2)],
        "ranks": 1,
        "folder": "",
    }
    return name, {**told, **more}


EIGHT = [[number, H100] for number in range(8)]


def with_gpus(name: str, **more: Any) -> Host_:
    """A host with eight GPUs that JAX uses."""
    known = {"packages": CUDA, "gpus": EIGHT, "devices": [("gpu", H100, 8)]}
    return host(name, **{**known, **more})


def found(*hosts: Host_) -> list[Judgement]:
    names = [name for name, _ in hosts]
    told = dict(hosts)
    return merge_findings([*judge_reach({}, names), *judge_hosts(told)])


def text(findings: list[Judgement], width: int = 1000) -> str:
    return "\n".join(format_lines(findings, width))


def wrong(findings: list[Judgement]) -> list[str]:
    return [re.sub(" +", " ", text([finding])) for finding in findings if finding.verdict != "ok"]


# --- judgement ---


def test_check_of_healthy_hosts_finds_no_problem() -> None:
    hosts = host("a"), host("b", memory_kib=[60 << 20, 64 << 20]), host("c")
    assert text(found(*hosts)).splitlines() == [
        "ok       hosts        3 of 3 ready",
        "ok       python       3.11.2",
        "ok       interpreter  /p",
        "ok       jax          0.10.2, jaxlib 0.10.2",
        "ok       memory       60.0-61.0 of 64.0 GiB free",
        "ok       clock        within 0.01 s of the launcher's",
        "ok       devices      2 cpu",
    ]


def test_check_of_healthy_gpus_finds_no_problem() -> None:
    findings = found(*(with_gpus(name) for name in "ab"))
    assert wrong(findings) == []
    assert f"ok       devices      8 {H100}" in text(findings).splitlines()


def test_facts_that_a_system_does_not_tell_are_left_out() -> None:
    known = {"python": "3.11.2", "interpreter": "/p", "platforms": "", "packages": JAX}
    assert [finding.topic for finding in found(("a", {**known, "ranks": 1, "folder": ""}))] == [
        *("hosts", "python", "interpreter", "jax")
    ]


# What is not well, and the line that says so.
WRONG: dict[str, tuple[list[Host_], str]] = {
    "another jax": (
        [host("a"), host("b", packages={"jax": "0.9.0", "jaxlib": "0.10.2"}), host("c")],
        "error jax b: 0.9.0, jaxlib 0.10.2; elsewhere 0.10.2, jaxlib 0.10.2",
    ),
    "no jaxlib": (
        [host("a"), host("b", packages={"jax": "0.10.2"})],
        "error jax b: 0.10.2, jaxlib is missing; elsewhere",
    ),
    "old jax": (
        [host("a", packages=OLD), host("b", packages=OLD)],
        "error jax a, b: jax 0.4.35 is too old: install 0.6.0 or newer",
    ),
    "another Python": (
        [host("a"), host("b", python="3.12.1"), host("c")],
        "warning python b: 3.12.1; elsewhere 3.11.2",
    ),
    "no directory": (
        [host("a"), host("b", folder="/no", missing=["/no"])],
        "error start b: /no: no such directory\n - make it, or choose another with -C or chdir=",
    ),
    "a clock ahead": (
        [host("a"), host("b", ahead_s=(1.1, 1.2))],
        "warning clock b: at least 1.1 s ahead of",
    ),
    "a clock behind": (
        [host("a"), host("b", ahead_s=(-9.5, -9))],
        "warning clock b: at least 9.0 s behind",
    ),
    "other devices": (
        [host("a"), host("b", devices=[("cpu", "cpu", 4)]), host("c")],
        "warning devices b: 4 cpu; elsewhere 2 cpu",
    ),
    "GPUs that JAX does not see": (
        [with_gpus(name, devices=[("cpu", "cpu", 1)]) for name in "ab"],
        "warning devices a, b: 8 GPUs, and JAX uses the CPU\n - `/p -c 'import jax; jax.devices",
    ),
    "GPUs of an environment for CPU": (
        [host("a", gpus=EIGHT, platforms="cpu")],
        "warning devices a: 8 GPUs, and JAX uses the CPU: JAX_PLATFORMS=cpu is set there",
    ),
    "GPUs without a plugin": (
        [host("a", gpus=EIGHT)],
        "warning devices a: 8 GPUs, and JAX uses the CPU: jax has no plugin for them\n"
        ' - /p -m pip install "jax[cuda13]"',
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_each_problem_is_reported_in_one_line(name: str) -> None:
    hosts, words = WRONG[name]
    [line, *others] = wrong(found(*hosts))
    assert line.startswith(words) and others == []


def test_barely_sufficient_resources_pass() -> None:
    assert wrong(found(host("a", ahead_s=(-3.0, -1.0)))) == []


def test_host_with_more_ranks_may_have_more_devices() -> None:
    more = host("b", ranks=2, devices=[("cpu", "cpu", 4)])
    assert wrong(found(host("a"), more, host("c"))) == []


def test_failed_hosts_with_the_same_reason_share_a_line() -> None:
    failed = {f"n{number}": f"ssh: n{number}: refused" for number in range(1, 60)}
    failed["x"] = "/p has no jax"
    findings = merge_findings(judge_reach(failed, ["a"]))
    assert wrong(findings) == [
        "error hosts n1, n2, n3, n4, n5, n6, n7, n8 and 51 more: ssh: n1: refused",
        "error hosts x: /p has no jax",
    ]
    assert text(findings).splitlines()[-1] == "ok       hosts        1 of 61 ready"


def test_failed_hosts_are_named_in_the_order_of_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    failures = iter(["dc", "ba"])  # of each try, in the order in which they come

    def fail(*_: object) -> list[Judgement]:
        raise HostsFailed("", 1, dict.fromkeys(next(failures), "refused"))

    monkeypatch.setattr(run, "_run_job", fail)
    hosts = [Host(name=name, slots=1) for name in "abcd"]
    findings = run.run(Job(program=(), python="python", chdir="/"), hosts, lambda _: None)
    assert wrong(findings) == ["error hosts a, b, c, d: refused"]


# --- the sum ---


def told(rank: int = 0, value: int = 21, **more: Any) -> dict[str, Any]:
    large = {"devices": 3, "size": 64 << 20, "values": [6, 6]}
    first = {"devices": 6, "size": 4, "values": [value, value]}
    times = {"import_s": rank + 1, "initialize_s": 0.2, "devices_s": 0.1, "first_s": 0.3}
    whole = {"coordinator": "h:1", "devices": [["cpu", "cpu", 2]], **times}
    return {**whole, "sums": [first, large], **more}


def summed(*ranks: dict[str, Any], why_not: str = "") -> list[str]:
    return re.sub(" +", " ", text(merge_findings(judge_sum(ranks, why_not)))).splitlines()


def test_facts_are_read_from_rank_output() -> None:
    printed = 'a warning\nsome mcjax-check: {"a": 1}\nmcjax-check: {cut o\nmcjax-check: {"b": [2]}'
    assert parse_output(printed) == {"a": 1, "b": [2]}
    assert summed(told(0), told(1), told(2)) == [
        "ok initialize 3 ranks joined at h:1 in 0.2 s (`import jax` took 3.0 s, jax.devices() 0.1 s)",
        "ok sum 21 over 6 devices, in 0.3 s",
    ]


def test_devices_and_gpus_of_a_hosts_ranks_are_merged() -> None:
    first = {"packages": JAX, "gpus": EIGHT[:2], **told()}
    second = {"packages": JAX, "gpus": EIGHT[1:2], **told()}
    merged = merge_by_host([("a", first), ("a", second), ("b", {})], {"a": "/work"})
    assert merged == {
        "a": {
            **first,
            "devices": [("cpu", "cpu", 4)],
            "gpus": EIGHT[:2],
            "ranks": 2,
            "folder": "/work",
        }
    }


def test_visible_gpus_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = tmp_path / "nvidia-smi"
    listed.write_text(
        f"#!/bin/sh\n[ $3 = --id=0,2 ] || exit 1\necho '0, {H100}'\necho '2, {H100}'\n"
    )
    listed.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,2")
    assert probe.list_gpus() == [[0, H100], [2, H100]]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-1")
    assert probe.list_gpus() == []
    monkeypatch.setenv("PATH", "")
    assert probe.list_gpus() == []


@pytest.mark.parametrize(
    ("ranks", "why_not", "line"),
    [
        ([told(), told(value=20)], "", "error sum 20 over 6 devices, not 21, of 4 bytes each"),
        ([told(), {}], "", "error sum not all ranks have reported their results"),
        ([told(), {}], "rank 1 failed", "error sum rank 1 failed"),
        ([told()], "rank 0 failed later", "error sum rank 0 failed later"),
        ([], "host a: x", "error sum host a: x"),
        ([{"devices": []}] * 2, "a limit", f"error sum a limit - {FIREWALL}"),
    ],
)
def test_wrong_sums_are_reported(ranks: list[dict[str, Any]], why_not: str, line: str) -> None:
    lines = [summary for summary in summed(*ranks, why_not=why_not) if summary[:3] != "ok "]
    assert "".join(lines) == line


def test_check_does_not_preallocate_gpu_memory() -> None:
    name, hosts = (
        "XLA_PYTHON_CLIENT_PREALLOCATE",
        [Host(name="a", slots=2), Host(name="b", slots=1, chdir="/b")],
    )
    job = Job(program=(), python="python", chdir="/")
    own = make_check_job(job.copy_with(timeout=7.0, start_timeout=5.0), hosts)
    assert (own.timeout, own.start_timeout, own.num_processes) == (7.0, 5.0, 3)
    limited = make_check_job(job, hosts)
    assert (limited.timeout, limited.start_timeout) == (120.0, 60.0)
    assert make_check_job(job.copy_with(hook=False), hosts).start_timeout is None
    wanted = '[["/", "/b"], [], false]'
    assert dict(limited.env) == {name: "false", probe.WANTED: wanted}
    chosen = job.copy_with(env=((name, "true"),))
    assert dict(make_check_job(chosen, hosts).env) == {name: "true", probe.WANTED: wanted}


def test_missing_internals_of_jax_are_told() -> None:
    missing = {"jax._src.x": "no recording", "jax._src.y": "no recording"}
    [line] = wrong(found(host("a", missing_internals=missing), host("b")))
    assert line.startswith("warning jax a: without jax._src.x, jax._src.y: no recording")


# --- the lines ---


def test_hosts_are_named_where_they_differ() -> None:
    other = host("b", packages={"jax": "0.9.0", "jaxlib": "0.9.0"})
    shown = text(found(host("a"), other, host("\x1b[31mc")), width=60).splitlines()
    assert "ok       python       3.11.2" in shown
    assert "ok       jax          a, \\x1b[31mc: 0.10.2, jaxlib 0.10.2" in shown
    assert max(map(len, shown)) <= 60


def test_a_cure_shared_by_several_findings_is_printed_once() -> None:
    three = [Judgement("t", value, ("a",), "error", "do it") for value in "xyz"]
    begin = "error    t            a: "
    assert text(three).splitlines() == [f"{begin}{letter}" for letter in "xyz"] + [
        f"{' ' * 22}- do it"
    ]


def test_last_line_counts_ranks_and_names_problems() -> None:
    bad = [Judgement("jax", "x", verdict="error"), Judgement("load", "y", verdict="warning")]
    assert format_last_line([], "2 ranks") == "passed: 2 ranks"
    assert format_last_line(bad[1:], "2 ranks") == "passed: 2 ranks (warnings: load)"
    assert format_last_line(bad, "2 ranks") == "FAILED: 2 ranks (errors: jax; warnings: load)"


def test_every_topic_is_documented() -> None:
    root = Path(__file__).parents[2]
    sources = (root / "mcjax_launch/check").glob("*.py")
    named = r'(?:Judgement|each|alike)\("([a-z ]+)"'
    topics = {topic for path in sources for topic in re.findall(named, path.read_text())}
    documented = set(re.findall("`([a-z ]+)`", (root / "docs/hosts.md").read_text()))
    assert len(topics) > 5 and {*topics, *Judgement._fields} - documented == set()

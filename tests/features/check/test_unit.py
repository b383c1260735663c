"""--check: what is taken for wrong, and how it reads."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from mcjax_launch.errors import HostsFailed
from mcjax_launch.features.check import probe, run
from mcjax_launch.features.check.run import (
    Judgement,
    format_lines,
    judge_folders,
    judge_hosts,
    judge_program,
    judge_reach,
    judge_sum,
    make_check_job,
    merge_by_host,
    merge_findings,
    parse_output,
)
from mcjax_launch.job.hosts import Host
from mcjax_launch.job.job import Job

H100 = "NVIDIA H100 80GB HBM3"
FIREWALL = "all ranks had joined: do firewalls pass all ports between the hosts?"

Host_ = tuple[str, dict[str, Any]]


def host(name: str, **more: Any) -> Host_:
    """What ranks of a host print on which all is well, but for what is said of it."""
    told = {
        "python": "3.11.2",
        "path": "/p",
        "jax": "0.10.2",
        "jaxlib": "0.10.2",
        "has_folder": True,
        "checksum": "",
        "devices": ["cpu", "cpu"],
        "why": "",
        "ranks": 1,
    }
    return name, {**told, **more}


def found(*hosts: Host_) -> list[Judgement]:
    names = [name for name, _ in hosts]
    told = dict(hosts)
    return merge_findings([*judge_reach({}, names), *judge_hosts(told)])


def text(findings: list[Judgement]) -> str:
    return "\n".join(format_lines(findings))


def wrong(findings: list[Judgement]) -> list[str]:
    return [re.sub(" +", " ", text([finding])) for finding in findings if finding.verdict != "ok"]


# --- judgement ---


def test_check_of_healthy_hosts_finds_no_problem() -> None:
    gpus = {"devices": [H100] * 8}
    assert text(found(host("a", **gpus), host("b", **gpus))).splitlines() == [
        "ok       reach        2 of 2 ready",
        "ok       python       3.11.2, /p",
        "ok       jax          0.10.2, jaxlib 0.10.2",
        f"ok       devices      8 {H100}",
    ]


def test_devices_that_no_rank_has_told_are_left_out() -> None:
    assert [finding.topic for finding in found(host("a", devices=[]))] == ["reach", "python", "jax"]


# What is not well, and the line that says so.
WRONG: dict[str, tuple[list[Host_], str]] = {
    "another jax": (
        [host("a"), host("b", jax="0.9.0"), host("c")],
        "error jax b: 0.9.0, jaxlib 0.10.2; elsewhere 0.10.2, jaxlib 0.10.2",
    ),
    "no jaxlib": (
        [host("a"), host("b", jaxlib="")],
        "error jax b: 0.10.2, jaxlib is missing; elsewhere",
    ),
    "old jax": (
        [host("a", jax="0.4.35"), host("b", jax="0.4.35")],
        "error jax a, b: jax 0.4.35 is too old: install 0.6.0 or newer",
    ),
    "another Python": (
        [host("a"), host("b", python="3.12.1"), host("c")],
        "warning python b: 3.12.1; elsewhere 3.11.2",
    ),
    "other devices": (
        [host("a"), host("b", devices=["cpu"] * 4), host("c")],
        "warning devices b: 4 cpu; elsewhere 2 cpu",
    ),
    "unused GPUs": (
        [host(name, why="their jax has no CUDA plugin") for name in "ab"],
        "warning devices a, b: JAX uses the CPU, although there are GPUs: their jax has no CUDA",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_each_problem_is_reported_in_one_line(name: str) -> None:
    hosts, words = WRONG[name]
    [line, *others] = wrong(found(*hosts))
    assert line.startswith(words) and others == []


def test_missing_folders_are_reported() -> None:
    hosts = dict([host("a"), host("b", has_folder=False), host("c", has_folder=False)])
    assert wrong([*judge_folders(hosts, {"a": "/w", "b": "/w", "c": ""})]) == [
        "error reach b: /w: no such directory\n - make it, or choose another with -C or chdir="
    ]


def test_copies_of_the_program_are_compared() -> None:
    hosts = dict([host("a", checksum="1" * 64), host("b"), host("c", checksum="2" * 64)])
    assert [*judge_program(hosts, "")] == []
    missing, differing = wrong([*judge_program(hosts, "a.py")])
    assert missing.startswith("error reach b: a.py is not there\n - copy it there, or start the ")
    assert differing.startswith("error reach c: a.py, SHA-256 222222222222; elsewhere a.py, SHA-")


def test_host_with_more_ranks_may_have_more_devices() -> None:
    more = host("b", ranks=2, devices=["cpu"] * 4)
    assert wrong(found(host("a"), more, host("c"))) == []


def test_failed_hosts_with_the_same_reason_share_a_line() -> None:
    failed = {f"n{number}": f"ssh: n{number}: refused" for number in range(1, 60)}
    failed["x"] = "/p has no jax"
    findings = merge_findings(judge_reach(failed, ["a"]))
    assert wrong(findings) == [
        "error reach n1, n2, n3, n4, n5, n6, n7, n8 and 51 more: ssh: n1: refused",
        "error reach x: /p has no jax",
    ]
    assert text(findings).splitlines()[-1] == "ok       reach        1 of 61 ready"


def test_failed_hosts_are_named_in_the_order_of_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    failures = iter(["dc", "ba"])  # of each try, in the order in which they come

    def fail(*_: object) -> list[Judgement]:
        raise HostsFailed("", 1, dict.fromkeys(next(failures), "refused"))

    monkeypatch.setattr(run, "_run_job", fail)
    hosts = [Host(name=name, slots=1) for name in "abcd"]
    findings = run.run(Job(program=(), python="python", chdir="/"), hosts, lambda _: None)
    assert wrong(findings) == ["error reach a, b, c, d: refused"]


# --- the sum ---


def told(rank: int = 0, value: int = 21, **more: Any) -> dict[str, Any]:
    times = {"import_s": rank + 1, "initialize_s": 0.2, "devices_s": 0.1, "sum_s": 0.3}
    return {
        "coordinator": "h:1",
        "devices": ["cpu"] * 2,
        "count": 6,
        **times,
        "values": [value] * 2,
        **more,
    }


def summed(*ranks: dict[str, Any], why_not: str = "") -> list[str]:
    return re.sub(" +", " ", text(merge_findings(judge_sum(ranks, why_not)))).splitlines()


def test_facts_are_read_from_rank_output() -> None:
    printed = 'a warning\nsome mcjax-check: {"a": 1}\nmcjax-check: {cut o\nmcjax-check: {"b": [2]}'
    assert parse_output(printed) == {"a": 1, "b": [2]}
    assert summed(told(0), told(1), told(2)) == [
        "ok coordinator 3 ranks joined at h:1 in 0.2 s (`import jax` took 3.0 s, jax.devices() 0.1 s)",
        "ok sum 21 over 6 devices, in 0.3 s",
    ]


def test_devices_of_a_hosts_ranks_are_merged() -> None:
    first, second = {"python": "3.11.2", **told()}, {"python": "3.12.1", **told()}
    merged = merge_by_host([("a", first), ("a", second), ("b", {})])
    assert merged == {"a": {**first, "devices": ["cpu"] * 4, "ranks": 2}}


@pytest.mark.parametrize(
    ("ranks", "why_not", "line"),
    [
        ([told(), told(value=20), told()], "", "error sum 20 over 6 devices, not 21"),
        ([told(), {}], "", "error sum not all ranks have reported their results"),
        ([told(), {}], "rank 1 failed", "error sum rank 1 failed"),
        ([told()], "rank 0 failed later", "error sum rank 0 failed later"),
        ([], "host a: x", "error sum host a: x"),
        ([{**told(), "values": None}] * 2, "a limit", f"error sum a limit - {FIREWALL}"),
    ],
)
def test_wrong_sums_are_reported(ranks: list[dict[str, Any]], why_not: str, line: str) -> None:
    lines = [summary for summary in summed(*ranks, why_not=why_not) if summary[:3] != "ok "]
    assert "".join(lines) == line


def test_check_does_not_preallocate_gpu_memory() -> None:
    hosts = [Host(name="a", slots=2), Host(name="b", slots=1, chdir="/b")]
    job = Job(program=(), python="python", chdir="/")
    own = make_check_job(job.copy_with(timeout=7.0, start_timeout=5.0), hosts)
    assert (own.timeout, own.start_timeout, own.num_processes) == (7.0, 5.0, 3)
    limited = make_check_job(job, hosts)
    assert (limited.timeout, limited.start_timeout) == (120.0, 60.0)
    assert make_check_job(job.copy_with(hook=False), hosts).start_timeout is None
    name, variables = "XLA_PYTHON_CLIENT_PREALLOCATE", dict(limited.env)
    assert (variables[name], variables[probe.HOST]) == ("false", "{host}")
    assert json.loads(variables[probe.WANTED])["folders"] == {"a": "/", "b": "/b"}
    chosen = job.copy_with(env=((name, "true"),))
    assert dict(make_check_job(chosen, hosts).env)[name] == "true"


def test_missing_internals_of_jax_are_told() -> None:
    missing = {"jax._src.x": "no recording", "jax._src.y": "no recording"}
    [line] = wrong(found(host("a", missing=missing), host("b")))
    assert line.startswith("warning jax a: without jax._src.x, jax._src.y: no recording")


# --- the lines ---


def test_hosts_are_named_where_they_differ() -> None:
    shown = text(found(host("a"), host("b", jax="0.9.0"), host("\x1b[31mc"))).splitlines()
    assert "ok       python       3.11.2, /p" in shown
    assert "ok       jax          a, \\x1b[31mc: 0.10.2, jaxlib 0.10.2" in shown


def test_a_cure_shared_by_several_findings_is_printed_once() -> None:
    three = [Judgement("t", value, ("a",), "error", "do it") for value in "xyz"]
    begin = "error    t            a: "
    assert text(three).splitlines() == [f"{begin}{letter}" for letter in "xyz"] + [
        f"{' ' * 22}- do it"
    ]


def test_every_topic_is_documented() -> None:
    root = Path(__file__).parents[3]
    sources = (root / "mcjax_launch/features/check").glob("*.py")
    named = r'(?:Judgement|each|alike)\("([a-z ]+)"'
    topics = {topic for path in sources for topic in re.findall(named, path.read_text())}
    documented = set(re.findall("`([a-z ]+)`", (root / "docs/hosts.md").read_text()))
    assert len(topics) == 6 and {*topics, *Judgement._fields} - documented == set()

"""--check: what is taken for wrong, and how it reads."""

import re
from pathlib import Path
from typing import Any

import pytest

from mcjax_launch.features.check.judgement import (
    HostFound,
    Judgement,
    SurveyResult,
    format_last_line,
    format_lines,
    judge,
    judge_devices,
    judge_gpus,
    judge_mtls,
    judge_sum,
    merge_findings,
)
from mcjax_launch.features.check.messages import (
    GpuFacts,
    GpuMemory,
    NetworkInterface,
    Probed,
    Surveyed,
)
from mcjax_launch.features.check.probe_output import (
    DeviceCount,
    DevicesCounted,
    PythonFacts,
    count_devices_by_host,
    parse_devices,
    parse_output,
    parse_python,
)
from mcjax_launch.features.check.run import make_check_job
from mcjax_launch.job.devices import GpuShares
from mcjax_launch.job.job import Job
from mcjax_launch.kernel.launcher.peers import Gap
from mcjax_launch.kernel.wire.messages import HostFacts, Tpu

JAX = {"jax": "0.10.2", "jaxlib": "0.10.2"}
OLD = {"jax": "0.4.35", "jaxlib": "0.4.34"}
H100 = GpuFacts("NVIDIA H100 80GB HBM3", "535.104", 8)
PLUGIN = {"jax-cuda12-pjrt": "0.10.2", "jax-cuda12-plugin": "0.10.2"}
SMALL = GpuMemory(0, 2 << 20, 2 << 20)  # for a screen
CUDA = {**JAX, **PLUGIN, "nvidia-nccl-cu12": "2.27.3"}
FOUR_CPUS = DevicesCounted((DeviceCount("cpu", "cpu", 4),), "")
CPUS = DevicesCounted((DeviceCount("cpu", "cpu", 2),), "")
OPEN = "any process that reaches the coordinator's port can end the job"
PRIVATE = "not needed: the coordinator has a private socket, and no port"


def host(name: str, **more: Any) -> HostFound:
    """A host on which all is well, but for what is said of it."""
    facts = {field: more.pop(field) for field in ("tpu", "platforms") if field in more}
    python = PythonFacts("/p", more.pop("version", "3.11.2"), more.pop("jax", JAX), "")
    whole: dict[str, Any] = {
        "facts": HostFacts("/p", "/work", **facts),
        "refused": "",
        "cores": 16,
        "load": 0.5,
        "memory_kib": 64 << 20,
        "free_kib": 61 << 20,
        "shm_kib": 64 << 20,
        "shm_free_kib": 64 << 20,
    }
    own = {field: more.pop(field) for field in HostFound._fields if field in more}
    surveyed = Surveyed(**{**whole, **more})
    known = {"ranks": 1, "python": python, "ahead_s": 0.001, "devices": CPUS, **own}
    return HostFound(name=name, surveyed=surveyed, **known)


def with_gpus(name: str, **more: Any) -> HostFound:
    """A host with eight GPUs that JAX uses."""
    known: dict[str, Any] = {
        "jax": CUDA,
        "gpus": (H100,),
        "gpu_memory": (GpuMemory(0, 80 << 20, 79 << 20),) * 8,
        "devices": DevicesCounted((DeviceCount("gpu", H100.name, 8),), ""),
    }
    return host(name, **{**known, **more})


def facing(mtu: int) -> NetworkInterface:
    return NetworkInterface("10.0.0.1", "eth0", mtu, 25_000)


def found(*hosts: HostFound, **more: Any) -> list[Judgement]:
    whole = SurveyResult(**{"hosts": hosts, "lost": {}, "seconds": 0.6, **more})
    return merge_findings([*judge(whole), *judge_devices(hosts), *judge_gpus(hosts)])


def text(findings: list[Judgement], width: int = 1000) -> str:
    return "\n".join(format_lines(findings, width))


def wrong(findings: list[Judgement]) -> list[str]:
    return [re.sub(" +", " ", text([finding])) for finding in findings if finding.verdict != "ok"]


# --- what the probe has told ---

TOLD = 'noise\nmcjax-check: {"version": "3.9.2", "packages": {"jax": "0.10.2"}}\n'


@pytest.mark.parametrize(
    ("answer", "facts"),
    [
        (Probed("/p", TOLD, ""), PythonFacts("/p", "3.9.2", {"jax": "0.10.2"}, "")),
        (
            Probed("/p", TOLD.replace("jax", "numpy").replace("mcnumpy", "mcjax"), ""),
            PythonFacts("/p", "3.9.2", {"numpy": "0.10.2"}, "has no jax"),
        ),
        (Probed("/p", "", "killed"), PythonFacts("/p", "", {}, "does not run: killed")),
        (Probed("", "", "no Python found"), PythonFacts("", "", {}, "no Python found")),
    ],
)
def test_python_facts_are_read_from_probe_output(answer: Probed, facts: PythonFacts) -> None:
    assert parse_python(answer) == facts


@pytest.mark.parametrize("printed", ["", "mcjax-check: {", TOLD, TOLD.replace('"0.10.2"', "7")])
def test_malformed_probe_output_is_an_error(printed: str) -> None:
    assert parse_devices(Probed("/p", printed, "")).error != ""
    if "0.10.2" not in printed:
        assert parse_python(Probed("/p", printed, "")).error.startswith("does not run: ")


def test_devices_are_read_from_probe_output() -> None:
    printed = 'mcjax-check: {"devices": [["cpu", "cpu", 4]]}\n'
    assert parse_devices(Probed("/p", printed, "")) == FOUR_CPUS
    assert parse_devices(Probed("/p", printed, "killed")) == DevicesCounted((), "killed")


# --- judgement ---


def test_check_of_healthy_hosts_finds_no_problem() -> None:
    """Nothing is said of GPUs, nor of the NCCL that came with another package."""
    hosts = host("a"), host("b", free_kib=60 << 20), host("c", jax={**JAX, "nvidia-nccl-cu12": "2"})
    assert text(found(*hosts, ways=6)).splitlines() == [
        "ok       hosts        3 of 3 reached in 0.6 s",
        "ok       python       3.11.2",
        "ok       interpreter  /p",
        "ok       jax          0.10.2, jaxlib 0.10.2",
        "ok       cores        16",
        "ok       memory       60.0-61.0 of 64.0 GiB free",
        "ok       clock        within 0.01 s of the launcher's",
        "ok       ports        all hosts reach one another (6 connections)",
        "ok       devices      2 cpu",
    ]


def test_check_of_healthy_gpus_finds_no_problem() -> None:
    share = GpuShares(words="1 for each rank, of 8 GPUs (/proc/driver/nvidia/gpus)")
    hosts = [with_gpus(name, share=share, interface=facing(9000)) for name in "ab"]
    shown = text(found(*hosts))
    assert wrong(found(*hosts)) == []
    for line in (
        "ok       plugins      jax-cuda12-plugin 0.10.2, nvidia-nccl-cu12 2.27.3",
        "ok       interface    eth0",
        "ok       network      MTU 9000, 25 Gbit/s",
        "ok       gpus         8 NVIDIA H100 80GB HBM3, driver 535.104",
        "ok       gpu memory   79.0 of 80.0 GiB free on each",
        f"ok       shares       {share.words}",
        "ok       shm          64.0 GiB of /dev/shm free",
    ):
        assert line in shown.splitlines()


def test_display_gpu_is_not_reported_as_unused() -> None:
    memory = (GpuMemory(0, 2 << 20, 1 << 18),)
    only = host("a", gpus=(GpuFacts("AMD gfx1103", "", 1),), gpu_memory=memory)
    assert wrong(found(only)) == []


def python(version: str, error: str) -> PythonFacts:
    return PythonFacts("/p" if version else "", version, {}, error)


# What is not well, and the line that says so.
WRONG: dict[str, tuple[list[HostFound], str]] = {
    "another jax": (
        [host("a"), host("b", jax={"jax": "0.9.0", "jaxlib": "0.10.2"}), host("c")],
        "error jax b: 0.9.0, jaxlib 0.10.2; elsewhere 0.10.2, jaxlib 0.10.2",
    ),
    "no jaxlib": (
        [host("a"), host("b", jax={"jax": "0.10.2"})],
        "error jax b: 0.10.2, jaxlib is missing; elsewhere",
    ),
    "old jax": (
        [host("a", jax=OLD), host("b", jax=OLD)],
        "error jax a, b: jax 0.4.35 is too old: install 0.6.0 or newer",
    ),
    "no jax": (
        [host("a"), host("b", python=python("3.9.2", "has no jax"))],
        "error python b: /p has no jax\n - install it, or choose another with --python",
    ),
    "no Python": (
        [host("a"), host("b", python=python("", "no Python found"))],
        "error python b: no Python found",
    ),
    "another Python": (
        [host("a"), host("b", version="3.12.1"), host("c")],
        "warning python b: 3.12.1; elsewhere 3.11.2",
    ),
    "no directory": ([host("a", refused="/no: no such directory")], "error start a: /no: no"),
    "busy hosts": ([host("a", load=9), host("b", load=15.8)], "warning load a, b: 9.0-15.8 in"),
    "a clock ahead": ([host("a"), host("b", ahead_s=1.1)], "warning clock b: 1.1 s ahead of"),
    "a clock behind": ([host("a"), host("b", ahead_s=-9)], "warning clock b: 9.0 s behind"),
    "another MTU": (
        [*(host(name, interface=facing(9000)) for name in "ab"), host("c", interface=facing(1500))],
        "warning network c: MTU 1500, 25 Gbit/s; elsewhere MTU 9000, 25 Gbit/s",
    ),
    "other devices": (
        [host("a"), host("b", devices=FOUR_CPUS), host("c")],
        "warning devices b: 4 cpu; elsewhere 2 cpu",
    ),
    "JAX that does not start": (
        [host("a", devices=DevicesCounted((), "ImportError: numpy"))],
        "error devices a: ImportError: numpy",
    ),
    "another plugin": (
        [host("a", jax={**JAX, "libtpu": "1"}), host("b", jax={**JAX, "libtpu": "2"})],
        "warning plugins b: libtpu 2; elsewhere libtpu 1",
    ),
    "a plugin that jaxlib does not use": (
        [with_gpus("a", jax={**CUDA, **dict.fromkeys(PLUGIN, "0.10.1")})],
        "warning plugins a: jax-cuda12-pjrt 0.10.1, jax-cuda12-plugin 0.10.1 not used, because jaxlib "
        'is 0.10.2\n - /p -m pip install "jax[cuda12]==0.10.2"',
    ),
    "fewer GPUs": (
        [with_gpus("a"), with_gpus("b", gpus=(), gpu_memory=(), jax=CUDA), with_gpus("c")],
        "warning gpus b: none; elsewhere 8 NVIDIA",
    ),
    "GPUs that JAX does not see": (
        [with_gpus(name, devices=CPUS) for name in "ab"],
        "warning gpus a, b: 8 GPUs, and JAX uses the CPU\n - `/p -c 'import jax; jax.devices",
    ),
    "GPUs of an environment for CPU": (
        [host("a", gpus=(H100,), platforms="cpu")],
        "warning gpus a: 8 GPUs, and JAX uses the CPU: JAX_PLATFORMS=cpu is set there",
    ),
    "GPUs without a plugin": (
        [host("a", gpus=(H100,))],
        "warning gpus a: 8 GPUs, and JAX uses the CPU: jax has no plugin for them\n"
        ' - /p -m pip install "jax[cuda12]"',
    ),
    "a driver that is too old": (
        [with_gpus("a", gpus=(H100.copy_with(driver="470.82.01"),))],
        "warning gpus a: driver 470.82.01 is older than 525, which jax[cuda12] needs",
    ),
    "a GPU with another program": (
        [with_gpus("a", gpu_memory=(SMALL, GpuMemory(3, 80 << 20, 39 << 20)))],
        "warning gpu memory a: other programs hold 41.0 GiB of GPU 3",
    ),
    "the /dev/shm of Docker": (
        [with_gpus("a", shm_kib=64 << 10, shm_free_kib=63 << 10)],
        "warning shm a: 63 of 64 MiB of /dev/shm free, too little for NCCL",
    ),
    "a /dev/shm that is full": (
        [with_gpus("a", shm_free_kib=1023 << 10)],
        "warning shm a: 1023 of 65536 MiB of /dev/shm free, too little for NCCL",
    ),
    "GPUs that cannot be shared": (
        [with_gpus("a", share=GpuShares(words="all 8 for each rank", uneven="3 ranks cannot"))],
        "warning shares a: 3 ranks cannot",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_each_problem_is_reported_in_one_line(name: str) -> None:
    hosts, words = WRONG[name]
    [line, *others] = wrong(found(*hosts))
    assert line.startswith(words) and others == []


def test_barely_sufficient_resources_pass() -> None:
    gpus = H100.copy_with(driver="525.60.13")
    half = GpuMemory(0, 80 << 20, 40 << 20)
    enough = {"load": 8.0, "ahead_s": -1.0, "shm_free_kib": 1 << 20}
    assert wrong(found(with_gpus("a", gpus=(gpus,), gpu_memory=(half,), **enough))) == []
    assert wrong(found(host("a", jax={**JAX, "jax-rocm7-plugin": "0.9.1"}))) == []
    assert wrong(found(with_gpus("a", gpu_memory=(SMALL.copy_with(free_kib=0),)))) == []


def test_host_with_more_ranks_may_have_more_devices() -> None:
    more = host("b", ranks=2, devices=FOUR_CPUS)
    assert wrong(found(host("a"), more, host("c"))) == []


def test_lost_hosts_with_the_same_reason_share_a_line() -> None:
    lost = {f"n{number}": f"ssh: n{number}: refused" for number in range(1, 60)}
    assert wrong(found(host("a"), lost={**lost, "x": "Permission denied"})) == [
        "error hosts n1, n2, n3, n4, n5, n6, n7, n8 and 51 more: ssh: n1: refused",
        "error hosts x: Permission denied",
    ]


def test_closed_ports_are_reported_with_their_reason() -> None:
    why = "10.0.0.3: no answer (a firewall?)"
    gaps = tuple(Gap(host, "c", why) for host in "ab")
    [line] = wrong(found(host("a"), host("b"), host("c"), ways=6, gaps=gaps, uses="cpu"))
    assert line.startswith(
        f"error ports a, b: cannot reach c at {why}\n - JAX's collectives on CPU"
    )


def test_tpu_chips_are_compared_between_hosts() -> None:
    four = DevicesCounted((DeviceCount("tpu", "TPU v5 lite", 4),), "")
    alike = (host("ab"[n], tpu=Tpu(4, "v5e", n, 2), devices=four) for n in range(2))
    assert wrong(found(*alike)) == []
    assert wrong(found(host("a", tpu=Tpu(4, "v5e", 0, 2)), host("b"))) == [
        "warning tpu b: none; elsewhere 4 chips (v5e)",
        "warning tpu a: JAX uses the CPU\n"
        " - is a jax for TPUs installed (jax[tpu]), or JAX_PLATFORMS or -d set?",
        "warning tpu 1 of the slice's 2 workers has ranks: on TPUs JAX waits for all of them; "
        "add the others to --hosts (or -d K for CPU devices)",
    ]


# --- the sum ---


def told(rank: int = 0, value: int = 21, **more: Any) -> dict[str, Any]:
    small = {"devices": 3, "size": 1 << 10, "values": [6, 6], "seconds": 0.0015}
    large = {"devices": 3, "size": 64 << 20, "values": [6, 6], "seconds": 0.17}
    first = {"devices": 6, "size": 4, "values": [value, value], "seconds": 1}
    times = {"import_s": rank + 1, "initialize_s": 0.2, "devices_s": 0.1, "first_s": 0.3}
    whole = {"coordinator": "h:1", "devices": [["cpu", "cpu", 2]], "slice": 0, **times}
    return {**whole, "sums": [first, small, large], **more}


def summed(*ranks: dict[str, Any], why_not: str = "") -> list[str]:
    return re.sub(" +", " ", text(merge_findings(judge_sum(ranks, why_not)))).splitlines()


def test_facts_are_read_from_rank_output() -> None:
    printed = 'a warning\nsome mcjax-check: {"a": 1}\nmcjax-check: {cut o\nmcjax-check: {"b": [2]}'
    assert parse_output(printed) == {"a": 1, "b": [2]}
    assert summed(told(0), told(1), told(2)) == [
        "ok initialize 3 ranks joined at h:1 in 0.2 s (`import jax` took 3.0 s, jax.devices() 0.1 s)",
        "ok slices 1 slice (ranks 0-2)",
        "ok sum 21 over 6 devices, in 0.3 s",
        "ok speed 1 KB in 1.50 ms, 64 MB in 170 ms (0.39 GB/s), from each of 3 devices",
    ]
    assert count_devices_by_host([("a", told()), ("a", told())]) == {"a": FOUR_CPUS}


@pytest.mark.parametrize(
    ("ranks", "why_not", "line"),
    [
        ([told(), told(value=20)], "", "error sum 20 over 6 devices, not 21, of 4 bytes each"),
        ([told(slice=1), told()], "", "note slices jax.make_mesh accepts only one"),
        ([told(), {}], "", "error sum not all ranks have reported their results"),
        ([told(), {}], "rank 1 failed", "error sum rank 1 failed"),
        ([told()], "rank 0 failed later", "error sum rank 0 failed later"),
        ([], "host a: x", "error sum host a: x"),
    ],
)
def test_wrong_sums_are_reported(ranks: list[dict[str, Any]], why_not: str, line: str) -> None:
    assert [summary for summary in summed(*ranks, why_not=why_not) if summary[:3] != "ok "] == [
        line
    ]


def test_check_does_not_preallocate_gpu_memory() -> None:
    name = "XLA_PYTHON_CLIENT_PREALLOCATE"
    job = Job(program=(), python="python", chdir="/")
    own = make_check_job(job.copy_with(timeout=7.0, start_timeout=5.0))
    assert (own.timeout, own.start_timeout) == (7.0, 5.0)
    limited = make_check_job(job)
    assert (limited.timeout, limited.start_timeout) == (120.0, 60.0)
    assert make_check_job(job.copy_with(hook=False)).start_timeout is None
    assert dict(make_check_job(job).env) == {name: "false"}
    assert dict(make_check_job(job.copy_with(env=((name, "true"),))).env) == {name: "true"}


# --- the lines ---


def test_hosts_are_named_where_they_differ() -> None:
    other = host("b", jax={"jax": "0.9.0", "jaxlib": "0.9.0"})
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
    root = Path(__file__).parents[3]
    sources = (root / "mcjax_launch/features/check").glob("*.py")
    named = r'(?:Judgement|each|alike)\("([a-z ]+)"'
    topics = {topic for path in sources for topic in re.findall(named, path.read_text())}
    documented = set(re.findall("`([a-z ]+)`", (root / "docs/hosts.md").read_text()))
    assert len(topics) > 15 and {*topics, *Judgement._fields} - documented == set()


@pytest.mark.parametrize(
    ("changes", "alone", "line"),
    [
        ({}, False, "ok mtls only processes of the job can join it"),
        ({"mtls": "on"}, True, "ok mtls only processes of the job can join it"),
        ({"mtls": "off"}, False, f"note mtls not used: --mtls off - {OPEN}"),
        ({"mtls": "off", "mtls_reason": "no"}, False, f"note mtls not used: no - {OPEN}"),
        ({"mtls": "off"}, True, f"ok mtls {PRIVATE}"),
        (
            {"mtls": "off", "coordinator": "10.0.0.1:0"},
            True,
            f"note mtls not used: --mtls off - {OPEN}",
        ),
    ],
)
def test_check_says_whether_strangers_can_join(
    changes: dict[str, Any], alone: bool, line: str
) -> None:
    job = Job(program=("",), python="/p", chdir="/", **changes)
    hosts = [host("a", jax={**JAX, "jax": "0.12.0"})]
    told = text(list(judge_mtls(job, hosts, alone=alone)))
    assert " ".join(told.split()) == line
    assert list(judge_mtls(job, [], alone=alone)) == []


def test_jax_without_mutual_tls_is_noted() -> None:
    job = Job(program=("",), python="/p", chdir="/")
    hosts = [host("a", jax={**JAX, "jax": "0.10.2"}), host("b", jax={**JAX, "jax": "0.12.0"})]
    [finding] = judge_mtls(job, hosts, alone=False)
    assert finding.value == "not used: a has jax 0.10.2, and mutual TLS needs jax 0.12"

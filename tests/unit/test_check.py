"""--check: what is taken for wrong, and how it reads."""

import re
from pathlib import Path
from typing import Any

import pytest

from mcjax_launch.check import report, table
from mcjax_launch.check.found import Clock, Found, GlobalSum, HostFound, Network, Timing
from mcjax_launch.check.judgement import judge, passed, why_no_sum
from mcjax_launch.check.names import folded, some
from mcjax_launch.check.step import Step
from mcjax_launch.check.sum_job import devices_of, job_of_check, messages, result_of, size_for
from mcjax_launch.job.gpus import GpuShares
from mcjax_launch.job.job import Job
from mcjax_launch.launcher.peers import Gap
from mcjax_launch.protocol.messages import (
    Devices,
    GpuFacts,
    GpuMemory,
    HostFacts,
    NetworkInterface,
    PythonFacts,
    Surveyed,
    Tpu,
)

DOCS = Path(__file__).parents[2] / "docs" / "check.md"
JAX = {"jax": "0.10.2", "jaxlib": "0.10.2"}
OLD = {"jax": "0.4.35", "jaxlib": "0.4.34"}
TAKEN = GpuMemory(3, 80 << 20, 9 << 20)
H100 = GpuFacts("NVIDIA H100 80GB HBM3", "535.104", 8)
CUDA = {
    **JAX,
    "jax-cuda12-pjrt": "0.10.2",
    "jax-cuda12-plugin": "0.10.2",
    "nvidia-nccl-cu12": "2.27.3",
}
RIGHT = GlobalSum(
    started=True,
    ranks=3,
    devices=6,
    values=(21,),
    right=True,
    import_s=1.0,
    initialize_s=0.2,
    first_s=0.3,
    slices=(0, 0, 0),
    timings=(Timing(1 << 10, 3, 0.0015), Timing(64 << 20, 3, 0.17)),
)


def host(name: str, **more: Any) -> HostFound:
    """A host on which all is well, but for what is said of it."""
    surveyed = Surveyed(
        facts=HostFacts(
            *("/venv/bin/python", "/work"),
            tpu=more.pop("tpu", None),
            platforms=more.pop("platforms", ""),
        ),
        refused=more.pop("refused", ()),
        python=more.pop("python", None)
        or PythonFacts("/venv/bin/python", more.pop("version", "3.11.2"), more.pop("jax", JAX), ""),
        cores=16,
        load=more.pop("load", 0.5),
        memory_kib=64 << 20,
        free_kib=int(more.pop("free_gib", 61.0) * (1 << 20)),
        gpus=more.pop("gpus", ()),
        gpu_memory=more.pop("gpu_memory", ()),
        shm_kib=more.get("shm_free_kib", 64 << 20),
        shm_free_kib=more.pop("shm_free_kib", 64 << 20),
    )
    clock = Clock(more.pop("ahead_s", 0.001), 0.002)
    devices = more.pop("devices", (Devices("cpu", "cpu", 2),))
    known: dict[str, Any] = {"surveyed": surveyed, "clock": clock, "devices": devices}
    return HostFound(**{"name": name, "ranks": 1, **known, **more})


def with_gpus(name: str, **more: Any) -> HostFound:
    """A host with eight GPUs that JAX uses."""
    memory = tuple(GpuMemory(number, 80 << 20, 79 << 20) for number in range(8))
    devices = (Devices("gpu", H100.name, 8),)
    known = {"gpus": (H100,), "gpu_memory": memory, "devices": devices, "jax": CUDA}
    return host(name, **{**known, **more})


def facing(mtu: int, speed: int = 25_000) -> NetworkInterface:
    return NetworkInterface("10.0.0.1", "eth0", mtu, speed)


def lost(name: str, why: str) -> HostFound:
    return HostFound(name=name, ranks=1, unreachable=why)


def found(*hosts: HostFound, total: GlobalSum = RIGHT, **network: Any) -> Found:
    seconds = {"hosts": 0.6, "survey": 0.3, "ports": 0.1, "all": 4.6}
    return Found(hosts=hosts, network=Network(**network), total=total, seconds=seconds)


def steps(*hosts: HostFound, **more: Any) -> dict[str, Step]:
    return {step.name: step for step in judge(found(*hosts, **more))}


# --- judgement ---


def test_all_is_well() -> None:
    judged = steps(host("a"), host("b"), host("c"), coordinator="10.0.0.1", pairs=6)
    assert {step.verdict for step in judged.values()} == {"ok"}
    assert list(judged) == [
        "hosts",
        "jax",
        "devices",
        "clocks",
        "ports",
        "initialize",
        "slices",
        "sum",
        "speed",
    ]
    assert judged["slices"].text == "1 slice (ranks 0-2)"
    assert judged["jax"].text == "Python 3.11.2, jax 0.10.2, jaxlib 0.10.2 on all hosts"
    assert judged["sum"].text == "21 over 6 devices, as expected"
    assert judged["speed"].text == (
        "1 KB in 1.5 ms, 64 MB in 170 ms (0.39 GB/s), from each of 3 devices"
    )
    assert passed(list(judged.values()))
    assert why_no_sum((host("a"), host("b")), Network()) == ""


def test_all_is_well_with_gpus() -> None:
    share = GpuShares(words="1 for each rank, of 8 GPUs (/proc/driver/nvidia/gpus)")
    hosts = [with_gpus(name, share=share, interface=facing(9000)) for name in "ab"]
    judged = steps(*hosts)
    assert {step.verdict for step in judged.values()} == {"ok"}
    assert judged["jax"].text == (
        "Python 3.11.2, jax 0.10.2, jaxlib 0.10.2, jax-cuda12-plugin 0.10.2, "
        "nvidia-nccl-cu12 2.27.3 on all hosts"
    )
    assert judged["gpus"].text == (
        "16 NVIDIA H100 80GB HBM3, driver 535.104; 79.0 of 80.0 GiB free on each"
    )
    assert judged["shares"].text == share.words
    assert judged["shm"].text == "64.0 GiB of /dev/shm free"
    assert judged["network"].text == "eth0 faces the other hosts: MTU 9000, 25 Gbit/s"


def test_nothing_is_said_of_gpus_that_nobody_wants() -> None:
    """With -d; and NCCL came with another package where there are none."""
    whole = found(host("a", gpus=(H100,))).replaced(on_cpu=True)
    assert {step.verdict for step in judge(whole)} == {"ok"}
    assert "nccl" not in steps(host("a", jax=CUDA))["jax"].text
    assert steps(host("a", jax=CUDA)).keys() == steps(host("a")).keys()


def test_the_gpu_of_a_screen_is_not_missed() -> None:
    memory = (GpuMemory(0, 2 << 20, 1 << 18),)
    only = host("a", gpus=(GpuFacts("AMD gfx1103", "", 1),), gpu_memory=memory)
    assert {step.verdict for step in steps(only).values()} == {"ok"}


# What is not well, the part that says so, its verdict, and words of it.
WRONG: dict[str, tuple[list[HostFound], str, str, str]] = {
    "another jax": (
        [host("a"), host("b", jax={"jax": "0.9.0", "jaxlib": "0.10.2"}), host("c")],
        "jax",
        "FAILED",
        "b: jax 0.9.0, elsewhere 0.10.2",
    ),
    "another jaxlib": (
        [host("a"), host("b"), host("c", jax={"jax": "0.10.2", "jaxlib": "0.9.0"})],
        "jax",
        "FAILED",
        "c: jaxlib 0.9.0, elsewhere 0.10.2",
    ),
    "old jax": (
        [host("a", jax=OLD), host("b", jax=OLD)],
        "jax",
        "FAILED",
        "a,b: jax 0.4.35 is too old: install 0.6.0 or newer",
    ),
    "no jaxlib": (
        [host("a"), host("b", jax={"jax": "0.10.2"})],
        "jax",
        "FAILED",
        "b: jaxlib is missing",
    ),
    "no jax": (
        [host("a"), host("b", python=PythonFacts("/p", "3.9.2", {}, "has no jax"))],
        "jax",
        "FAILED",
        "b: /p has no jax; install it there",
    ),
    "no Python": (
        [host("a"), host("b", python=PythonFacts("", "", {}, "no Python found"))],
        "jax",
        "FAILED",
        "b: no Python found",
    ),
    "another Python": (
        [host("a"), host("b", version="3.12.1"), host("c")],
        "jax",
        "warning",
        "b: Python 3.12.1, elsewhere 3.11.2",
    ),
    "another plugin": (
        [host("a", jax={**JAX, "libtpu": "1"}), host("b", jax={**JAX, "libtpu": "2"})],
        "jax",
        "warning",
        "b: libtpu 2, elsewhere 1",
    ),
    "no directory": (
        [host("a", refused=("/no: no such directory",))],
        "start",
        "FAILED",
        "a: /no: no",
    ),
    "other devices": (
        [host("a"), host("b", devices=(Devices("cpu", "cpu", 4),)), host("c")],
        "devices",
        "warning",
        "b: 4 cpu, elsewhere 2 cpu",
    ),
    "another driver": (
        [
            with_gpus("a"),
            with_gpus("b"),
            with_gpus("c", gpus=(H100.replaced(driver="570.1"),)),
        ],
        "gpus",
        "warning",
        "c: 8 NVIDIA H100 80GB HBM3, driver 570.1, elsewhere 8 NVIDIA H100 80GB HBM3, driver 535.",
    ),
    "fewer GPUs": (
        [with_gpus("a"), with_gpus("b", gpus=()), with_gpus("c")],
        "gpus",
        "warning",
        "b: no GPU, elsewhere 8 NVIDIA",
    ),
    "GPUs that JAX does not see": (
        [with_gpus(name, devices=(Devices("cpu", "cpu", 1),)) for name in "ab"],
        "gpus",
        "warning",
        "a,b: 8 GPUs, and JAX uses the CPU: `/venv/bin/python -c 'import jax; jax.devices",
    ),
    "GPUs of an environment for CPU": (
        [host("a", gpus=(H100,), platforms="cpu")],
        "gpus",
        "warning",
        "a: 8 GPUs, and JAX uses the CPU: JAX_PLATFORMS=cpu is set there",
    ),
    "GPUs without a plugin": (
        [host("a", gpus=(H100,))],
        "gpus",
        "warning",
        "a: 8 GPUs, but no plugin for jax, so it uses the CPU: "
        '/venv/bin/python -m pip install "jax[cuda12]"',
    ),
    "a driver that is too old": (
        [with_gpus("a", gpus=(H100.replaced(driver="470.82.01"),))],
        "gpus",
        "warning",
        "a: driver 470.82.01 is older than 525, which jax[cuda12] needs",
    ),
    "a GPU with another program": (
        [with_gpus("a", gpu_memory=(*[GpuMemory(0, 80 << 20, 80 << 20)] * 3, TAKEN))],
        "gpus",
        "warning",
        "a: another program holds 71.0 of 80.0 GiB of GPU 3",
    ),
    "a plugin that jaxlib does not use": (
        [with_gpus("a", jax={**CUDA, "jax-cuda12-plugin": "0.10.1"})],
        "jax",
        "warning",
        "a: jax-cuda12-plugin 0.10.1 does not fit jaxlib 0.10.2, which will not use it: "
        '/venv/bin/python -m pip install "jax[cuda12]==0.10.2"',
    ),
    "another NCCL": (
        [with_gpus("a"), with_gpus("b", jax={**CUDA, "nvidia-nccl-cu12": "2.21.5"})],
        "jax",
        "warning",
        "b: nvidia-nccl-cu12 2.21.5, elsewhere 2.27.3",
    ),
    "the /dev/shm of Docker": (
        [with_gpus("a", shm_free_kib=64 << 10)],
        "shm",
        "warning",
        "a: 64 MiB of /dev/shm: in Docker use --shm-size=8g or --ipc=host",
    ),
    "GPUs that cannot be shared": (
        [with_gpus("a", share=GpuShares(words="all 8 for each rank", uneven="3 ranks cannot"))],
        "shares",
        "warning",
        "a: 3 ranks cannot",
    ),
    "another MTU": (
        [*(host(name, interface=facing(9000)) for name in "ab"), host("c", interface=facing(1500))],
        "network",
        "warning",
        "c: MTU 1500, 25 Gbit/s, elsewhere MTU 9000, 25 Gbit/s",
    ),
    "JAX that does not start": (
        [host("a", devices=(), devices_error="ImportError: numpy")],
        "devices",
        "FAILED",
        "a: ImportError: numpy",
    ),
    "a busy host": (
        [host("a"), host("b", load=15.8)],
        "load",
        "warning",
        "b: load 15.8 on 16 cores",
    ),
    "busy hosts": (
        [host("a", load=9), host("b", load=15.8)],
        "load",
        "warning",
        "a,b: load 9.0-15.8 on 16 cores",
    ),
    "a clock ahead": (
        [host("a"), host("b", ahead_s=3.2)],
        "clocks",
        "warning",
        "b: 3.2 s ahead of",
    ),
    "a clock behind": ([host("a"), host("b", ahead_s=-9)], "clocks", "warning", "b: 9.0 s behind"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong(name: str) -> None:
    hosts, part, verdict, words = WRONG[name]
    judged = steps(*hosts)
    assert judged[part].verdict == verdict
    assert words in "\n".join(judged[part].details)
    others = {step.name for step in judged.values() if step.verdict != "ok"} - {part}
    assert others == set()
    assert passed(list(judged.values())) == (verdict == "warning")
    if part in ("jax", "start"):
        assert bool(why_no_sum(hosts, Network())) == (verdict == "FAILED")


def test_a_clock_may_be_as_wrong_as_its_look() -> None:
    """An answer that took 4 s says little."""
    hosts = host("a"), host("b").replaced(clock=Clock(1.9, 2.0))
    assert steps(*hosts)["clocks"].verdict == "ok"


def test_hosts_with_more_ranks_may_have_more_devices() -> None:
    more = host("b", ranks=2, devices=(Devices("cpu", "cpu", 4),))
    assert steps(host("a"), more, host("c"))["devices"].verdict == "ok"
    assert "!" not in "".join(table.host_lines((host("a"), more, host("c")), 80))


def test_all_lost_hosts_are_told_those_of_one_kind_together() -> None:
    down = [lost(f"n{number}", f"ssh: n{number}: refused") for number in range(1, 60)]
    hosts = [host("a"), *down, lost("x", "Permission denied")]
    judged = steps(*hosts, total=GlobalSum(why_not=why_no_sum(hosts, Network())))
    assert judged["hosts"].verdict == "FAILED"
    assert judged["hosts"].text == "60 of 61 hosts cannot be used"
    assert judged["hosts"].details == (
        "n[1-59]: ssh: n1: refused",
        "x: Permission denied",
    )
    assert (judged["sum"].verdict, judged["sum"].text) == ("not run", "see hosts")
    assert not passed(list(judged.values()))


def test_ways_that_are_closed() -> None:
    hosts = host("a"), host("b"), host("c")
    why = "10.0.0.3: no answer (a firewall?)"
    judged = steps(*hosts, coordinator="10.0.0.1", pairs=6, gaps=(Gap("b", "c", why),))
    assert judged["ports"].verdict == "FAILED"
    assert judged["ports"].text == "1 of 6 ways between hosts are closed"
    assert judged["ports"].details[0] == f"b cannot reach c (c at {why})"
    both = tuple(Gap(one, other, why) for one in "abc" for other in "abc" if one != other)
    judged = steps(*hosts, error="b cannot reach the coordinator", pairs=6, gaps=both)
    assert judged["ports"].details[:2] == (
        "b cannot reach the coordinator",
        f"a,b,c cannot reach any other host (b at {why})",
    )
    assert why_no_sum(hosts, Network(error="b cannot")) == "see ports"


@pytest.mark.parametrize(
    ("total", "verdict", "words"),
    [
        (RIGHT.replaced(values=(20, 21)), "FAILED", "20, 21 over 6 devices expected 21"),
        (RIGHT.replaced(right=False), "FAILED", "the sum of many numbers is wrong"),
        (GlobalSum(started=True, why_not="rank 1 failed"), "FAILED", "rank 1 failed"),
        (RIGHT.replaced(why_not="rank 1 failed later"), "FAILED", "rank 1 failed later"),
        (GlobalSum(why_not="host b: no GPU"), "not run", "host b: no GPU"),
    ],
)
def test_sums_that_are_not_right(total: GlobalSum, verdict: str, words: str) -> None:
    step = steps(host("a"), host("b"), host("c"), total=total)["sum"]
    assert step.verdict == verdict
    assert words in " ".join([step.text, *step.details])


def test_what_is_quick() -> None:
    total = RIGHT.replaced(timings=(Timing(64 << 20, 8, 4e-4),))
    assert steps(host("a"), total=total)["speed"].text == (
        "64 MB in 400 us (168 GB/s), from each of 8 devices"
    )


def test_tpu_chips() -> None:
    four = Devices("tpu", "TPU v5 lite", 4)
    alike = [
        host(name, tpu=Tpu(4, "v5e", number, 2), devices=(four,))
        for number, name in enumerate("ab")
    ]
    assert steps(*alike)["devices"].verdict == "ok"
    assert "4 TPU v5 lite (4 TPU chips (v5e))" in "\n".join(table.host_lines(alike, 80))
    judged = steps(host("a", tpu=Tpu(4, "v5e", 0, 2)), host("b"))["devices"]
    assert judged.verdict == "warning"
    assert judged.details == (
        "b: no TPU chips, elsewhere 4 TPU chips (v5e)",
        "a: 4 TPU chips (v5e), and JAX uses the CPU: is a jax for TPUs installed (jax[tpu]), "
        "or JAX_PLATFORMS or -d set?",
        "1 of the slice's 2 workers has ranks: on TPUs JAX waits for all of them; "
        "add the others to --hosts (or -d K for CPU devices)",
    )


def test_several_slices() -> None:
    step = steps(host("a"), total=RIGHT.replaced(slices=(0, 1, 0)))["slices"]
    text = "2 slices (ranks 0,2; rank 1): jax.make_mesh refuses more than one"
    assert (step.verdict, step.text) == ("ok", text)


# --- what ranks tell ---


def printed(rank: int, value: int = 3) -> str:
    return "\n".join(
        [
            "a warning of somebody's",
            f'mcjax-check: {{"process": {1 - rank}, "devices": [["cpu", "cpu"]], "slices": [0, 1], "import_s": {rank}.5}}',
            f'mcjax-check: {{"value": {value}, "devices_in_all": 2, "first_s": 0.1}}',
            'mcjax-check: {"size": 1024, "on": 2, "seconds": 0.001, "right": true}',
            'mcjax-check: {"size": 67108864, "on": 2, "seconds": 0.5, "right": true}',
            "mcjax-check: {cut o",
        ]
    )


def test_what_ranks_tell() -> None:
    told = [list(messages(printed(rank))) for rank in (0, 1)]
    result = result_of(told, "")
    assert (result.values, result.expected, result.right) == ((3,), 3, True)
    assert (result.ranks, result.devices, result.import_s, result.why_not) == (2, 2, 1.5, "")
    assert result.slices == (1, 0)  # rank 0 is process 1
    assert result.timings == (Timing(1024, 2, 0.001), Timing(67108864, 2, 0.5))
    assert devices_of([("a", told[0]), ("a", told[1])]) == {"a": (Devices("cpu", "cpu", 2),)}


def test_a_rank_that_tells_nothing() -> None:
    told = [list(messages(printed(0))), []]
    assert result_of(told, "").why_not == "not all ranks have told their results"
    assert result_of(told, "rank 1 failed").why_not == "rank 1 failed"
    assert result_of([], "host a: x") == GlobalSum(why_not="host a: x", right=True)


def test_one_rank_with_another_result() -> None:
    told = [list(messages(printed(0))), list(messages(printed(1, value=4)))]
    assert result_of(told, "").values == (3, 4)


def test_little_memory() -> None:
    assert size_for([host("a"), host("b")], 2) == 64 << 20
    assert size_for([host("a"), host("b", free_gib=0.25)], 2) == 32 << 20
    assert size_for([host("a", free_gib=0.001)], 64) == 1 << 20


# --- the table ---


def shown(*hosts: HostFound, width: int = 80) -> str:
    return "\n".join(table.host_lines(hosts, width))


def test_hosts_that_are_alike_share_a_line() -> None:
    many = [host(f"node{n:03}", free_gib=60 + n / 100, gpus=(H100,)) for n in range(1, 101)]
    many[41] = host("node042", jax={"jax": "0.9.0", "jaxlib": "0.9.0"}, gpus=(H100,))
    many[6] = lost("node007", "no route")
    lines = shown(*many, width=100).splitlines()
    assert lines[0].split() == [
        "HOST",
        "PYTHON",
        "JAX",
        "CORES",
        "FREE",
        "MEM",
        "CLOCK",
        "DEVICES",
    ]
    assert "node[001-006,008-041," in lines[1] and "60.0-61.0 GiB" in lines[1]
    text = "\n".join(lines)
    assert re.search(r"node042 +3\.11\.2 +0\.9\.0 ! ", text)
    assert re.search(r"node007 +no answer +-", text)
    assert len(lines) < 12


def test_a_column_that_says_nothing_is_left_out() -> None:
    assert shown(lost("a", "x"), lost("b", "x")) == "HOST  PYTHON     JAX\na,b   no answer  -"


@pytest.mark.parametrize("width", [60, 80, 100])
def test_it_fits(width: int) -> None:
    hosts = [host(f"gpu{n}.cluster.example.org", gpus=(H100,), ahead_s=n) for n in range(0, 9, 3)]
    hosts += [lost(f"very-long-name-of-a-host-{n}", "x " * 100) for n in range(3)]
    whole = found(*hosts, coordinator="10.0.0.1", pairs=6)
    lines = table.lines(whole, judge(whole), width)
    assert max(map(len, lines)) <= max(width, 80)
    assert max(len(line) for line in table.step_lines(judge(whole), width)) <= width


def test_nothing_acts_on_the_terminal() -> None:
    model = H100.replaced(name="H\x1b[31m100")
    whole = found(lost("a", "bad \x1b[31m words"), with_gpus("b", gpus=(model,)))
    assert "\x1b" not in "\n".join(table.lines(whole, judge(whole), 80))


def test_the_last_line() -> None:
    def last(*hosts: HostFound) -> str:
        whole = found(*hosts)
        return table.lines(whole, judge(whole), 80)[-1]

    assert last(host("a"), host("b")) == "passed: 2 ranks on 2 hosts, in 4.6 s"
    assert last(host("a", ahead_s=5), host("b", load=16)) == (
        "passed, with 2 warnings (load, clocks): 2 ranks on 2 hosts, in 4.6 s"
    )
    assert last(host("a"), lost("b", "x")) == "FAILED (hosts): 2 ranks on 2 hosts, in 4.6 s"


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["node1", "node2", "node3", "node5"], "node[1-3,5]"),
        (["n08", "n09", "n10", "n12"], "n[08-10,12]"),
        (["a", "b", "gpu1.x", "gpu2.x"], "a,b,gpu[1-2].x"),
        (["10.0.0.1", "10.0.0.2"], "10.0.0.1,10.0.0.2"),
        (["localhost"], "localhost"),
    ],
)
def test_folded_names(names: list[str], text: str) -> None:
    assert folded(names) == text


def test_some_names() -> None:
    assert some("abcdefghi") == "a,b,c,d,e,f,g,h,i"
    assert some("abcdefghijkl") == "a,b,c,d,e,f,g,h and 4 more"


# --- the file ---


def fields(data: object) -> set[str]:
    """All names of fields in it; those of packages and times are the data's own."""
    if isinstance(data, list):
        return set().union(*map(fields, data))
    if not isinstance(data, dict):
        return set()
    free = {"packages", "parts_s"}
    return set(data) | set().union(*(fields(one) for name, one in data.items() if name not in free))


def test_every_field_is_documented() -> None:
    a = with_gpus("a", interface=facing(1500))
    whole = found(a, lost("b", "x"), gaps=(Gap("a", "b", ""),))
    data = report.as_json(whole, judge(whole), ["--env", "A=secret", "--check"], began=0, host="h")
    documented = set(re.findall(r"`(\w+)`", DOCS.read_text()))
    assert fields(data) - documented == set()
    assert (data["passed"], data["began"]) == (False, "1970-01-01T00:00:00.000+00:00")
    assert data["command"] == ["mcjax-launch", "--env", "A=...", "--check"]
    assert [one["reached"] for one in data["hosts"]] == [True, False]


def test_a_check_leaves_the_memory_of_gpus_to_others() -> None:
    name = "XLA_PYTHON_CLIENT_PREALLOCATE"
    job = Job(program=(), python="python", chdir="/")
    assert dict(job_of_check(job).env) == {name: "false"}
    own = job.replaced(env=((name, "true"),))
    assert dict(job_of_check(own).env) == {name: "true"}

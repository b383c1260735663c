"""What ranks do on their GPUs, judged by readings of NVML: they work, wait or idle."""

from typing import Any

import pytest
from records import run_of

from mcjax_launch.agent.gpu_users import attribute_gpus, merge_readings
from mcjax_launch.agent.system import system
from mcjax_launch.agent.system.unix import HostProcess
from mcjax_launch.explain.rules import memory_taken
from mcjax_launch.explain.view import View
from mcjax_launch.journal.facts import MemoryExhausted
from mcjax_launch.journal.gpu_use import GpuActivity, describe_gpus
from mcjax_launch.journal.summary import summarize
from mcjax_launch.launcher import progress
from mcjax_launch.machine.gpus import select_own_gpus
from mcjax_launch.wire.messages import Exited, GpuUse, RankOnGpu, RankUsage, Usage

IDLE, WAITS, WORKS = GpuActivity
# What a GPU of 700 W does, as it was measured on an H100: percentages and watts.
Doing = tuple[float | None, float | None, float | None]
CONTEXT: Doing = (0, 0, 117)
SPINS_A_LITTLE: Doing = (100, 0, 119)
SPINS: Doing = (100, 0, 128)
MATRICES: Doing = (99, 9, 568)
ELEMENTWISE: Doing = (81, 52, 384)
LIGHT: Doing = (81, 52, 191)
IN_REGISTERS: Doing = (100, 0, 400)
TINY_STEPS: Doing = (0, 0, 120)
BURSTS: Doing = (40, 0, 130)


def use(number: int, doing: Doing, *ranks: int, limit_w: float | None = 700) -> GpuUse:
    busy, memory, power = doing
    mine = tuple(RankOnGpu(rank, 520, busy, memory) for rank in ranks)
    return GpuUse(number, "H100", 1024, 81559, busy, memory, power, limit_w, mine)


class Job:
    """Ranks that neither print nor use a processor; each report comes 2 s after the last."""

    def __init__(self, ranks: int = 2) -> None:
        self.state = run_of(ranks)
        self.now = 0.0

    def report(self, *on_gpus: GpuUse, cpu_s: float = 0.0) -> None:
        self.now += 2.0
        used = tuple(RankUsage(rank, cpu_s * self.now, 1) for rank in self.state.ranks)
        self.state.on_usage(Usage(used, on_gpus), self.now)

    def activities(self) -> list[GpuActivity | None]:
        runs = self.state.ranks.values()
        return [run.usage.gpus.activity for run in runs]


# Reports of a rank's only GPU, one after another, and what the last one shows.
HISTORIES: list[tuple[list[Doing], GpuActivity | None]] = [
    ([CONTEXT] * 5, IDLE),
    ([CONTEXT] * 5 + [TINY_STEPS], IDLE),
    ([CONTEXT] * 5 + [SPINS_A_LITTLE], WAITS),
    ([CONTEXT] * 5 + [SPINS], WAITS),
    ([SPINS], WAITS),
    ([MATRICES], WORKS),
    ([ELEMENTWISE], WORKS),
    ([LIGHT], WORKS),
    ([CONTEXT] * 5 + [IN_REGISTERS], WORKS),
    # It has never idled, so that hardly more than half of the limit could be that of an idle GPU.
    ([(100, 0, 360)], WAITS),
    ([IN_REGISTERS], WORKS),
    # A context has just been made, and the power still rises.
    ([(0, 0, 71), (0, 0, 90), (0, 0, 110), CONTEXT, SPINS], WAITS),
    # A rank that starts ever new programs neither waits for long nor uses much power.
    ([CONTEXT] * 5 + [BURSTS], None),
    # Parts of a GPU tell nothing, and some cards no power.
    ([(None, None, None)], None),
    ([(100, 0, None)], WAITS),
    ([MATRICES, SPINS], WAITS),
]


@pytest.mark.parametrize(("history", "activity"), HISTORIES)
def test_activity_follows_from_utilisation_and_power(
    history: list[Doing], activity: GpuActivity | None
) -> None:
    job = Job()
    for doing in history:
        job.report(use(0, doing, 0))
    assert job.activities() == [activity, None]


@pytest.mark.parametrize(
    ("idle_w", "spins_w", "works_w", "limit_w"), [(28, 29, 45, 72), (55, 60, 110, 450)]
)
def test_power_is_judged_by_the_card(
    idle_w: float, spins_w: float, works_w: float, limit_w: float
) -> None:
    job = Job()
    for doing in ((0, 0, idle_w),) * 4:
        job.report(use(0, doing, 0, limit_w=limit_w))
    job.report(use(0, (100, 0, spins_w), 0, limit_w=limit_w))
    assert job.activities()[0] is WAITS
    job.report(use(0, (100, 0, works_w), 0, limit_w=limit_w))
    assert job.activities()[0] is WORKS


def test_only_rank_with_one_gpu_has_nothing_to_wait_for() -> None:
    job = Job(ranks=1)
    job.report(use(0, SPINS, 0))
    assert job.activities() == [WORKS]
    job.report(use(0, SPINS, 0), use(1, SPINS, 0))
    assert job.activities() == [WAITS]


def test_rank_that_works_on_any_gpu_works() -> None:
    job = Job()
    job.report(use(0, SPINS, 0), use(1, MATRICES, 0))
    job.report(use(0, SPINS, 0), use(1, CONTEXT, 0))
    assert job.activities()[0] is WAITS
    assert job.state.ranks[0].usage.gpus.since == 2.0


def test_holders_of_memory_are_named_after_a_rank_has_found_none() -> None:
    job = Job(ranks=7)
    job.state.on_memory_exhausted(MemoryExhausted(6), 1.0)
    assert list(memory_taken(View(job.state, 1.0))) == []
    held = [RankOnGpu(rank, mib) for rank, mib in enumerate((9000, 8000, 40000, 7000, 6000, 5000))]
    others = ("pid 99 (python x.py) 900 MiB",)
    full = GpuUse(1, "NVIDIA H100", 81000, 81920, ranks=(*held, RankOnGpu(6, 520)), others=others)
    job.report(use(0, CONTEXT, 6), full)
    [found] = memory_taken(View(job.state, job.now))
    assert found.words == (
        "rank 6 found no memory: of GPU 1 (H100) 79.1 of 80.0 GiB are in use: rank 2 39.1 GiB, "
        "rank 0 8.8 GiB, rank 1 7.8 GiB, rank 3 6.8 GiB, 3 more 11.2 GiB, "
        "pid 99 (python x.py) 900 MiB"
    )
    end = Exited(6, 1, (), None, 0.0, 0)
    job.state.on_exited(end, job.now)
    job.report()  # its memory is free again
    assert found.words in summarize(job.state).lines


def test_rows_and_line_tell_memory_use_and_power() -> None:
    job = Job()
    for _ in range(2):
        job.report(use(0, MATRICES, 0), use(1, CONTEXT, 1), cpu_s=0.01)
    for run in job.state.ranks.values():
        run.process.started_at = 0.0
    rows = progress.format_rank_rows(job.state, 4.0, 20)
    assert "H100: 0.5 of 79.6 GiB, 99 %, 568 W" in rows[0]
    assert "H100: 0.5 of 79.6 GiB, 0 %, 117 W" in rows[1]
    line = progress.format_job_use(job.state, 4.0)
    assert line.startswith("rank 0 busy")
    assert "2 x H100: 2.0 of 159.3 GiB, 50 %, 685 W" in line
    job.report()
    assert progress.format_rank_rows(job.state, 6.0, 20)[0] == rows[0]


def test_card_without_power_or_utilisation_tells_its_memory() -> None:
    assert describe_gpus([(use(0, (None, None, None), 0), None)]) == "H100: 1.0 of 79.6 GiB"


# --- on the host ---

# Pid, parent, session: ranks 0 and 1, a child of rank 1, and a stranger.
PROCESSES = {
    pid: HostProcess(pid, parent, session, 0.0, 0)
    for pid, parent, session in ((10, 1, 10), (11, 1, 11), (12, 11, 12), (99, 1, 99))
}
RANKS = {10: 0, 11: 1}
CARD = {
    "number": 0,
    "name": "H100",
    "uuid": "GPU-a",
    "used_mib": 9,
    "total_mib": 99,
    "busy": 90,
    "memory_busy": 5,
    "power_w": 300,
    "limit_w": 700,
    "processes": [],
}


def reading(**changes: Any) -> dict[str, Any]:
    return {**CARD, **changes}


def attribute(
    *readings: dict[str, Any],
    environs: dict[int, dict[str, str]] | None = None,
    sees_all: bool = True,
) -> list[tuple[RankOnGpu, ...]]:
    found = attribute_gpus([*readings], PROCESSES, RANKS, environs or {}, sees_all=sees_all)
    return [gpu.ranks for gpu in found]


def test_processes_of_a_rank_are_the_ranks() -> None:
    alone = reading(processes=[[11, 100, 80, 4], [12, 50, 90, 5]])
    assert attribute(alone) == [(RankOnGpu(1, 150, 90, 5),)]


def test_ranks_that_share_a_gpu_are_told_apart() -> None:
    shared = reading(processes=[[10, 100, 80, 4], [11, 50, 0, 0]])
    assert attribute(shared) == [(RankOnGpu(0, 100, 80, 4), RankOnGpu(1, 50, 0, 0))]
    untold = reading(processes=[[10, 100, None, None], [11, None, None, None]])
    assert attribute(untold) == [(RankOnGpu(0, 100, 90, 5), RankOnGpu(1, None, 90, 5))]


def test_work_of_strangers_is_no_ranks() -> None:
    found = attribute_gpus(
        [reading(processes=[[99, 100, 80, 4], [10, 9, 0, 0]])], PROCESSES, RANKS, {}, sees_all=True
    )
    assert [gpu.ranks for gpu in found] == [(RankOnGpu(0, 9, 0, 0),)]
    assert found[0].others == ("pid 99 100 MiB",)
    assert attribute(reading(processes=[[99, 100, 80, 4]])) == [()]


def test_stranger_is_named_by_its_program_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its other arguments may hold secrets."""
    words = ["/usr/bin/python3", "/me/train.py", "--token", "s3cret"]
    monkeypatch.setattr(system, "read_command", lambda pid: words)
    mine = reading(processes=[[99, 7, 0, 0]])
    [found] = attribute_gpus([mine], PROCESSES, RANKS, {}, sees_all=True)
    assert found.others == ("pid 99 (python3 train.py) 7 MiB",)


def test_gpu_of_a_container_works_for_the_rank_that_owns_it() -> None:
    """The driver tells the pids of the host, or none."""
    environs = {0: {"JAX_LOCAL_DEVICE_IDS": "1"}, 1: {"CUDA_VISIBLE_DEVICES": "GPU-a"}}
    cards = [reading(), reading(number=1, uuid="GPU-b", processes=[[4711, 5, 80, 4]])]
    of = [(RankOnGpu(1, None, 90, 5),), (RankOnGpu(0, None, 90, 5),)]
    assert attribute(*cards, environs=environs, sees_all=False) == of
    assert attribute(*cards, environs=environs) == [(), ()]


@pytest.mark.parametrize(
    ("environ", "own"),
    [
        ({}, [0, 1, 2]),
        ({"CUDA_VISIBLE_DEVICES": "2,0"}, [2, 0]),
        ({"CUDA_VISIBLE_DEVICES": "2,0", "JAX_LOCAL_DEVICE_IDS": "1"}, [0]),
        ({"CUDA_VISIBLE_DEVICES": "GPU-c"}, [2]),
        ({"CUDA_VISIBLE_DEVICES": ""}, []),
        ({"JAX_LOCAL_DEVICE_IDS": "1,7"}, [1]),
    ],
)
def test_own_gpus_follow_from_the_environment(environ: dict[str, str], own: list[int]) -> None:
    assert select_own_gpus(environ, ["GPU-a", "GPU-b", "GPU-c"]) == own


def test_readings_are_merged_so_that_no_short_work_is_missed() -> None:
    worked, last = reading(busy=80, memory_busy=5, power_w=300), reading(busy=0, power_w=117)
    last.update(memory_busy=0, used_mib=77)
    [merged] = merge_readings([[worked], [], [last]])
    told = ("busy", "memory_busy", "power_w", "used_mib")
    assert [merged[name] for name in told] == [40, 5, 300, 77]
    [unknown] = merge_readings([[worked], [reading(busy=None)]])
    assert unknown["busy"] is None

"""What ranks use of their GPUs, by readings of NVML: memory, and how busy the GPUs are."""

from typing import Any

import pytest
from records import run_of

from mcjax_launch.agent.gpu_users import attribute_gpus
from mcjax_launch.agent.system import system
from mcjax_launch.agent.system.unix import HostProcess
from mcjax_launch.features.explain.rules import memory_taken
from mcjax_launch.features.explain.view import View
from mcjax_launch.journal.facts import MemoryExhausted
from mcjax_launch.journal.gpu_use import describe_gpus
from mcjax_launch.journal.summary import summarize
from mcjax_launch.launcher import progress
from mcjax_launch.machine.gpus import select_own_gpus
from mcjax_launch.wire.messages import Exited, GpuUse, RankOnGpu, RankUsage, Usage


def use(number: int, busy: int | None, *ranks: int) -> GpuUse:
    return GpuUse(number, "H100", 1024, 81559, busy, tuple(RankOnGpu(rank, 520) for rank in ranks))


class Job:
    """Ranks that neither print nor use a processor; each report comes 2 s after the last."""

    def __init__(self, ranks: int = 2) -> None:
        self.state = run_of(ranks)
        self.now = 0.0

    def report(self, *on_gpus: GpuUse, cpu_s: float = 0.0) -> None:
        self.now += 2.0
        used = tuple(RankUsage(rank, cpu_s * self.now, 1) for rank in self.state.ranks)
        self.state.on_usage(Usage(used, on_gpus), self.now)


def test_holders_of_memory_are_named_after_a_rank_has_found_none() -> None:
    job = Job(ranks=7)
    job.state.on_memory_exhausted(MemoryExhausted(6), 1.0)
    assert list(memory_taken(View(job.state, 1.0))) == []
    held = [RankOnGpu(rank, mib) for rank, mib in enumerate((9000, 8000, 40000, 7000, 6000, 5000))]
    others = ("pid 99 (python x.py) 900 MiB",)
    full = GpuUse(1, "NVIDIA H100", 81000, 81920, ranks=(*held, RankOnGpu(6, 520)), others=others)
    job.report(use(0, 0, 6), full)
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


def test_rows_and_line_tell_memory_and_use() -> None:
    job = Job()
    for _ in range(2):
        job.report(use(0, 99, 0), use(1, 0, 1), cpu_s=0.01)
    for run in job.state.ranks.values():
        run.process.started_at = 0.0
    rows = progress.format_rank_rows(job.state, 4.0, 20)
    assert "H100: 0.5 of 79.6 GiB, 99 %" in rows[0]
    assert "H100: 0.5 of 79.6 GiB, 0 %" in rows[1]
    line = progress.format_job_use(job.state, 4.0)
    assert line.startswith("rank 0 busy")
    assert "2 x H100: 2.0 of 159.3 GiB, 50 %" in line
    job.report()
    assert progress.format_rank_rows(job.state, 6.0, 20)[0] == rows[0]


def test_card_without_utilisation_tells_its_memory() -> None:
    assert describe_gpus([(use(0, None, 0), None)]) == "H100: 1.0 of 79.6 GiB"


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
    alone = reading(processes=[[11, 100], [12, 50]])
    assert attribute(alone) == [(RankOnGpu(1, 150),)]
    untold = reading(processes=[[10, 100], [11, None]])
    assert attribute(untold) == [(RankOnGpu(0, 100), RankOnGpu(1, None))]


def test_memory_of_strangers_is_no_ranks() -> None:
    mixed = reading(processes=[[99, 100], [10, 9]])
    [found] = attribute_gpus([mixed], PROCESSES, RANKS, {}, sees_all=True)
    assert (found.ranks, found.others) == ((RankOnGpu(0, 9),), ("pid 99 100 MiB",))
    assert attribute(reading(processes=[[99, 100]])) == [()]


def test_stranger_is_named_by_its_program_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its other arguments may hold secrets."""
    words = ["/usr/bin/python3", "/me/train.py", "--token", "s3cret"]
    monkeypatch.setattr(system, "read_command", lambda pid: words)
    mine = reading(processes=[[99, 7]])
    [found] = attribute_gpus([mine], PROCESSES, RANKS, {}, sees_all=True)
    assert found.others == ("pid 99 (python3 train.py) 7 MiB",)


def test_gpu_of_a_container_belongs_to_the_rank_that_owns_it() -> None:
    """The driver tells the pids of the host, or none."""
    environs = {0: {"JAX_LOCAL_DEVICE_IDS": "1"}, 1: {"CUDA_VISIBLE_DEVICES": "GPU-a"}}
    cards = [reading(), reading(number=1, uuid="GPU-b", processes=[[4711, 5]])]
    of = [(RankOnGpu(1),), (RankOnGpu(0),)]
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

"""What is said of ranks whose devices are not like those of the others."""

from typing import Any

import pytest
from records import end_of, failure, run_of, say

from mcjax_launch.diagnosis.summary import summarize
from mcjax_launch.jax_messages.lost_peer import missing_key
from mcjax_launch.kernel.wire.hook_messages import Backend
from mcjax_launch.runs.state import RunState
from mcjax_launch.watchdog.joining import JoiningRanks

CPU, CUDA, GPU = Backend("cpu", 1), Backend("cuda", 0), Backend("gpu", 1)
SEES_NONE = "do they see any (nvidia-smi, CUDA_VISIBLE_DEVICES, the plugin of their jax)?"
FAILED = Backend("cpu", 1, "cuda: no supported devices found")


def joined() -> RunState:
    """Four ranks, two on each host."""
    state = run_of(4, joins=True, hosts=2)
    for rank, run in state.ranks.items():
        run.host = f"gpu0{rank // 2}"
    return state


NOTES = {
    "alike": ([(0, GPU), (1, GPU), (2, GPU), (3, GPU)], []),
    "all on the CPU": ([(0, CPU), (1, CPU), (2, CPU), (3, CPU)], []),
    "one without": (
        [(0, CUDA), (1, CUDA), (3, CPU), (2, CUDA)],
        [
            f"rank 3 on gpu01 uses the CPU, ranks 0-1 GPUs: {SEES_NONE}",
            f"rank 3 on gpu01 uses the CPU, the others GPUs: {SEES_NONE}",
        ],
    ),
    "two without, and why": (
        [(0, GPU), (2, FAILED), (3, FAILED), (1, GPU)],
        [
            "rank 2 on gpu01 uses the CPU, rank 0 GPUs: cuda: no supported devices found",
            "ranks 2-3 on gpu01 use the CPU, the others GPUs: cuda: no supported devices found",
        ],
    ),
    "all fell back": (
        [(rank, FAILED) for rank in range(4)],
        [
            "all ranks use the CPU, although there are GPUs: cuda: no supported devices found "
            "(-x JAX_PLATFORMS=cpu if that is wanted)"
        ],
    ),
    "another count": (
        [(0, Backend("gpu", 4)), (1, Backend("gpu", 4)), (2, GPU), (3, Backend("gpu", 4))],
        ["rank 2 on gpu01 has 1 local GPU, the others 4"],
    ),
    "another count of CPU devices": (
        [(0, CPU), (1, Backend("cpu", 2)), (2, CPU), (3, CPU)],
        ["rank 1 on gpu00 has 2 local CPU devices, the others 1"],
    ),
}


@pytest.mark.parametrize("case", NOTES)
def test_notes(case: str) -> None:
    said, expected = NOTES[case]
    state, notes, lines = joined(), JoiningRanks(), []
    for rank, backend in said:
        say(state, rank, backend, 3.0)
        lines.append(notes.backend_note(state))
    assert [line for line in lines if line] == expected


LOCAL = "INTERNAL: Getting local topologies failed: Error 1: " + "\n\nError 2: ".join(
    f"GetKeyValue() timed out with key: cuda:local_topology/cuda/{process} and duration: 2m"
    for process in (1, 3)
)
GLOBAL = "DEADLINE_EXCEEDED: GetKeyValue() timed out with key: cuda:global_topology/cuda and duration: 5m"
TUNING = (
    "DEADLINE_EXCEEDED: GetKeyValue() timed out with key: gpu:gemm_fusion_autotuning_results_"
    "b190aeb9aa0b_iuhMRX2JY-YpaUJD_2 and duration: 24h"
)


def test_keys() -> None:
    keys: dict[str, Any] = {
        LOCAL: ("cuda", (1, 3)),
        GLOBAL: ("cuda", (0,)),
        GLOBAL + LOCAL: ("cuda", (1, 3)),
    }
    keys |= {TUNING: ("", (2,)), "GetKeyValue() timed out with key: mine/1 and duration: 2m": None}
    assert {text: missing_key(text) for text in keys} == keys


@pytest.mark.parametrize(("text", "backend", "blame"), [
    (LOCAL, CPU, "rank 1 on gpu00 uses the CPU: the others waited for its cuda devices"),
    (LOCAL, None, "rank 1 on gpu00 did not start a backend for cuda in time (nor did rank 3)"),
    (TUNING, GPU, "rank 2 on gpu01 did not come to a compilation that the others shared with it"),
])  # fmt: skip
def test_who_is_to_blame(text: str, backend: Backend | None, blame: str) -> None:
    state = joined()
    if backend is not None:
        say(state, 1, backend, 3.0)
    summary = f"RuntimeError: Unable to initialize backend 'cuda': {text}"
    say(state, 0, failure(summary), 120.0)
    state.exited(end_of(0, 1), 120.0)
    for rank in (1, 2, 3):
        state.exited(end_of(rank, -9, (15, 9)), 121.0)
    assert summarize(state).lines[0] == blame

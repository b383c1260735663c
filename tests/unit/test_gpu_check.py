"""What scripts/gpu-check makes of what it has seen."""

from pathlib import Path

import pytest
from gpu_check.check import Check, NotRun, Seen
from gpu_check.command import CHECKS
from gpu_check.machine import Machine, Ran
from gpu_check.probes import Driver, Jax, no_gpu
from gpu_check.result import FAILED, NOT_RUN, OK, Result, counts

OUTPUT = """\
[1] rank 1: [cuda:1] of 2
[0] rank 0: [cuda:0] of 2
mcjax-launch: hid 2 lines from Gloo, rank 1 failed
mcjax-launch: rank 1 failed: ValueError: bad batch
"""
JAX = Jax("cpu", ("cpu",), "0.12.0", "0.12.0", {}, "3.13.0")
PLUGIN = Jax("cpu", ("cpu",), "0.12.0", "0.12.0", {"jax-cuda12-plugin": "0.12.0"}, "3.13.0")


def machine(count: int, *, rehearsal: bool = False) -> Machine:
    return Machine("python", "ranks", Path("out"), rehearsal, count)


def test_what_a_run_has_said() -> None:
    ran = Ran(1, OUTPUT, 3.2)
    assert ran.first("rank 1", "failed") == "rank 1 failed: ValueError: bad batch"
    assert ran.first("rank 2") == "nothing was said"
    assert ran.of_ranks(" of ") == ["rank 0: [cuda:0] of 2", "rank 1: [cuda:1] of 2"]
    assert ran.ended == "exit status 1 after 3 s"


@pytest.mark.parametrize(
    ("count", "rehearsal", "options", "meets"),
    [
        (1, False, "-n 2 --gpus-per-process all -x XLA_PYTHON_CLIENT_MEM_FRACTION=0.4", "barrier"),
        (2, False, "-n 2 --gpus-per-process 1", "sum"),
        (8, False, "-n 4 --gpus-per-process 1", "sum"),
        (2, True, "-n 2 -d 1", "sum"),
    ],
)
def test_ranks_that_meet(count: int, rehearsal: bool, options: str, meets: str) -> None:
    here, platform = machine(count, rehearsal=rehearsal), "cpu" if rehearsal else "gpu"
    words = " ".join(here.command(here.together("name", "killed", "--max-restarts", 1)))
    assert words.startswith(f"python -m mcjax_launch {options} --max-restarts 1 --python ranks ")
    assert words.endswith(f"on_gpus.py killed {meets} {platform}")


def test_most_checks_need_one_gpu() -> None:
    assert {name for name, check in CHECKS.items() if check.gpus > 1} == {"several", "verify"}


def test_what_is_not_run() -> None:
    def run(machine: Machine) -> Seen:
        return Seen(True, "fine")

    with pytest.raises(NotRun, match="needs 2 GPUs: one is not two"):
        Check("", run, gpus=2, why_several="one is not two").try_on(machine(1))
    real = Check("", run, real="no GPU is there")
    with pytest.raises(NotRun, match="in a rehearsal: no GPU is there"):
        real.try_on(machine(2, rehearsal=True))
    assert real.try_on(machine(2)).text == "fine"


def test_rows() -> None:
    results = [
        Result("a", OK, "what", "x | y\nz", 2.3),
        Result("b", FAILED, "what", "w" * 500, 61.0),
        Result("c", NOT_RUN, "what", "why", 0.0),
    ]
    rows = [result.row for result in results]
    assert rows[0] == "| ok | a | what | x \\| y z | 2 s |"
    assert rows[1].endswith("w ... | 61 s |")
    assert rows[2] == "| not run | c | what | why |  |"
    assert counts(results) == "1 ok, 1 FAILED, 1 not run"


@pytest.mark.parametrize(
    ("jax", "why_none", "visible", "said"),
    [
        (JAX, "there is no driver", None, "there is no driver. scripts/gpu-check --cpu rehearses"),
        (JAX, "", None, "it has no plugin for one: type ranks -m pip install 'jax[cuda12]'"),
        (PLUGIN, "", "", "where CUDA_VISIBLE_DEVICES is '': unset it"),
        (PLUGIN, "", None, "type JAX_PLATFORMS=cuda ranks -c 'import jax; jax.devices()'"),
    ],
)
def test_why_jax_sees_no_gpu(
    monkeypatch: pytest.MonkeyPatch, jax: Jax, why_none: str, visible: str | None, said: str
) -> None:
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    line = str(no_gpu("ranks", jax, Driver(why_none=why_none)))
    assert line.startswith("jax 0.12.0 of ranks sees no GPU (only cpu)")
    assert said in line

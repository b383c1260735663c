"""What scripts/gpu-check makes of what it has seen."""

from pathlib import Path

import pytest
from gpu_check.check import Check, NotRun, Seen
from gpu_check.machine import Machine
from gpu_check.probes import Driver, Jax, no_gpu

JAX = Jax("cpu", ("cpu",), "0.12.0", "0.12.0", {}, "3.13.0")
PLUGIN = Jax("cpu", ("cpu",), "0.12.0", "0.12.0", {"jax-cuda12-plugin": "0.12.0"}, "3.13.0")


def machine(count: int, *, rehearsal: bool = False) -> Machine:
    return Machine("python", "ranks", Path("out"), rehearsal, count)


@pytest.mark.parametrize(
    ("count", "rehearsal", "options", "meets"),
    [
        (1, False, "-n 2 --gpus-per-process all", "barrier"),
        (2, False, "-n 2 --gpus-per-process 1", "sum"),
        (8, False, "-n 4 --gpus-per-process 1", "sum"),
        (2, True, "-n 2 -d 1", "sum"),
    ],
)
def test_ranks_meet_as_the_machine_allows(
    count: int, rehearsal: bool, options: str, meets: str
) -> None:
    here, platform = machine(count, rehearsal=rehearsal), "cpu" if rehearsal else "gpu"
    words = " ".join(here.command(here.together("name", "killed", "--max-restarts", 1)))
    assert words.startswith(f"python -m mcjax_launch {options} --max-restarts 1 --python ranks ")
    assert words.endswith(f"on_gpus.py killed {meets} {platform}")


def test_missing_requirements_skip_a_trial() -> None:
    def run(machine: Machine) -> Seen:
        return Seen(True, "fine")

    with pytest.raises(NotRun, match="needs 2 GPUs: one is not two"):
        Check("", run, gpus=2, why_several="one is not two").try_on(machine(1))
    real = Check("", run, real="no GPU is there")
    with pytest.raises(NotRun, match="in a rehearsal: no GPU is there"):
        real.try_on(machine(2, rehearsal=True))
    assert real.try_on(machine(2)).text == "fine"


@pytest.mark.parametrize(
    ("jax", "why_none", "visible", "said"),
    [
        (JAX, "there is no driver", None, "there is no driver. scripts/gpu-check --cpu rehearses"),
        (JAX, "", None, "it has no plugin for one: type ranks -m pip install 'jax[cuda12]'"),
        (PLUGIN, "", "", "where CUDA_VISIBLE_DEVICES is '': unset it"),
        (PLUGIN, "", None, "type JAX_PLATFORMS=cuda ranks -c 'import jax; jax.devices()'"),
    ],
)
def test_reason_for_an_unseen_gpu_is_found(
    monkeypatch: pytest.MonkeyPatch, jax: Jax, why_none: str, visible: str | None, said: str
) -> None:
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    line = str(no_gpu("ranks", jax, Driver(why_none=why_none)))
    assert line.startswith("jax 0.12.0 of ranks sees no GPU (only cpu)")
    assert said in line

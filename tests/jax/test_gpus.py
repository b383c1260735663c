"""GPUs that the ranks of a host share: what real JAX would hand to a GPU's plugin."""

import re
from pathlib import Path

import pytest
from jobs import Ended, Jobs

pytestmark = pytest.mark.afresh  # an import of jax reads what these set

# The flag holds the devices that xla_bridge hands to the plugin (as `visible_devices`).
SHOW = """
import os, sys, jax
{after}
jax.numpy.ones(2)  # a backend
names = [name for name in jax.config.values if name.endswith("_visible_devices")]
if "MCJAX_HOOK_SOCKET" not in os.environ:  # initialize() of jax 0.10 itself leaves out Intel's
    names = [name for name in names if "oneapi" not in name]
flags = {{jax.config.values[name] for name in names}}
assert len(flags) == 1 or "mine" in sys.argv, flags
print("uses", jax.config.values["jax_cuda_visible_devices"], os.environ.get("JAX_LOCAL_DEVICE_IDS"))
"""
BY_HAND = """jax.distributed.initialize(os.environ["JAX_COORDINATOR_ADDRESS"],
    int(os.environ["JAX_NUM_PROCESSES"]), int(os.environ["JAX_PROCESS_ID"]))"""
INITIALIZE = "jax.distributed.initialize()"
FOUR = {"CUDA_VISIBLE_DEVICES": "4,5,6,7"}


def uses(ended: Ended) -> dict[int, str]:
    assert ended.status == 0, ended.stderr
    found = re.findall(r"\[(\d)\] uses (.*)\n", ended.stdout)
    return {int(rank): said for rank, said in found}


def program(folder: Path, after: str = INITIALIZE) -> Path:
    path = folder / "shows.py"
    path.write_text(SHOW.format(after=after))
    return path


@pytest.mark.every_jax
@pytest.mark.parametrize(
    ("options", "after"),
    [
        ([], INITIALIZE),
        (["--preload", "jax"], ""),
        (["--no-hook"], BY_HAND),
    ],
    ids=str,
)
def test_each_rank_has_its_own_gpus(
    jobs: Jobs, tmp_path: Path, options: list[str], after: str
) -> None:
    """Of every vendor's GPUs that this jax knows."""
    ended = jobs.run("-n", 2, *options, program(tmp_path, after), env=FOUR)
    assert uses(ended) == {0: "0,1 0,1", 1: "2,3 2,3"}


# What each rank does, and what it uses.
SETTINGS = {
    f"os.environ['CUDA_VISIBLE_DEVICES'] = '1'; {INITIALIZE}": "all None",
    f"jax.config.update('jax_cuda_visible_devices', '3'); {INITIALIZE}": "3 None",
    "jax.distributed.initialize(local_device_ids=[0])": "0 2",
    INITIALIZE: "3 3",
}


def test_setting_of_the_program_takes_precedence(jobs: Jobs, tmp_path: Path) -> None:
    after = f"exec({[*SETTINGS]}[int(os.environ['JAX_PROCESS_ID'])])"
    ended = jobs.run("-n", 4, program(tmp_path, after), "mine", env=FOUR)
    assert uses(ended) == dict(enumerate(SETTINGS.values()))


def test_setting_of_the_user_takes_precedence(jobs: Jobs, tmp_path: Path) -> None:
    ended = jobs.run("-n", 2, program(tmp_path), env={"JAX_LOCAL_DEVICE_IDS": "3,1"})
    assert uses(ended) == {0: "3 3", 1: "1 1"}


def test_cpu_devices_option_overrides_the_environment(jobs: Jobs, tmp_path: Path) -> None:
    path = tmp_path / "shows.py"
    path.write_text("import jax; print(jax.default_backend(), len(jax.devices()))")
    ended = jobs.run("-d", 3, path, env={"JAX_PLATFORMS": "cuda"})
    assert (ended.status, ended.stdout) == (0, "[0] cpu 3\n")
    line = "-d 3: the ranks use the CPU, not JAX_PLATFORMS=cuda"
    assert ended.stderr == f"mcjax-launch: {line}\n"

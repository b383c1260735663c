"""Slices on one machine: what a program sees of them with real JAX."""

from importlib.metadata import version

import pytest
from jobs import PROGRAMS, Jobs

PROGRAM = PROGRAMS / "slices.py"
new_jax = pytest.mark.skipif(
    tuple(map(int, version("jax").split(".")[:2])) < (0, 10), reason="needs jax 0.10 or newer"
)


def seen(text: str) -> set[str]:
    """What each rank says of the slices."""
    lines = [line.partition("slices ")[2] for line in text.splitlines()]
    return {line for line in lines if line}


@pytest.mark.every_jax
def test_slices_are_equal_and_in_rank_order(jobs: Jobs) -> None:
    ended = jobs.run("-n", 4, "-d", 2, "--slices", 2, PROGRAM)
    assert ended.status == 0, ended.stderr
    assert seen(ended.stdout) == {"0 0 0 0 1 1 1 1"}
    assert ended.stdout.count("the sum is right") == 4


@pytest.mark.every_jax
@new_jax
def test_a_mesh_without_slices_is_refused_with_a_hint(jobs: Jobs) -> None:
    ended = jobs.run("-n", 4, "-d", 1, PROGRAM, "make_mesh", env={"MCJAX_SLICES": "2"})
    assert ended.status == 1
    assert "hint: JAX sees 2 slices (ranks 0-1; ranks 2-3): build the mesh with" in ended.report
    assert "create_hybrid_device_mesh" in ended.report
    assert "--slices one (on GPUs that replaces the id of the NVLink fabric)" in ended.report
    assert jobs.run("-n", 4, "-d", 1, PROGRAM, "make_mesh").status == 0


@new_jax
@pytest.mark.parametrize("how", ["argument", "variable"])
def test_own_partitions_of_the_program_take_precedence(jobs: Jobs, how: str) -> None:
    ended = jobs.run("-n", 2, "-d", 1, "--slices", "one", PROGRAM, how, "{process_id}")
    assert ended.status == 0, ended.stderr
    assert seen(ended.stdout) == {"0 1"}


def test_slices_follow_process_ids_not_ranks(jobs: Jobs) -> None:
    """The first device is rank 3's, as on TPUs."""
    ended = jobs.run("-n", 4, "-d", 1, "--slices", 2, PROGRAMS / "permuted.py", "slices")
    assert ended.status == 0, ended.stderr
    assert seen(ended.stdout) == {"[1, 0, 0, 1]"}

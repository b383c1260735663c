"""--preload with JAX: a forked rank is what any other rank is, only sooner."""

from pathlib import Path

import pytest
from jobs import Jobs

pytestmark = pytest.mark.afresh  # a test says itself which ranks are forked


def test_forked_ranks_have_random_numbers_of_their_own(jobs: Jobs, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "import jax, multiprocessing, numpy, random\n"
        "authkey = multiprocessing.current_process().authkey.hex()\n"
        "print(random.random(), numpy.random.random(), authkey)"
    )
    ended = jobs.run("-n", 2, "--preload", "jax,numpy.random", "program.py", cwd=tmp_path)
    first, other = (line.split()[1:] for line in ended.stdout.splitlines())
    assert len({*first, *other}) == 6, ended.stderr


# --- what a program sets before its import of jax ---

SHOWS = """
import jax
print(jax.config.values, jax.numpy.arange(2.0).dtype)
"""
SETS = """
import os
for name, value in {settings}.items():
    os.environ["JAX" + "_" + name.upper()] = value
"""
FLAGS = {
    "platforms": "cpu",
    "compilation_cache_dir": "cache",
    "enable_x64": "true",
    "debug_nans": "1",
    "disable_jit": "Y",
    "numpy_rank_promotion": "warn",
    "default_matmul_precision": "high",
    "traceback_in_locations_limit": "3",
    "persistent_cache_min_compile_time_secs": "2.5",
}


@pytest.mark.every_jax
def test_flags_that_the_source_does_not_name_are_applied(jobs: Jobs, tmp_path: Path) -> None:
    """As by hand: the names are made while the program runs."""
    (tmp_path / "program.py").write_text(SETS.format(settings=FLAGS) + SHOWS)
    env = {"JAX_PLATFORMS": ""}
    fresh, forked = (
        jobs.run("-v", "-n", 2, "--preload", way, "program.py", cwd=tmp_path, env=env)
        for way in ("none", "auto")
    )
    assert sorted(fresh.stdout.splitlines()) == sorted(forked.stdout.splitlines()), forked.stderr
    assert "ranks 0-1 forked after importing jax" in forked.report
    assert "had been imported" not in forked.report


FIRST_IMPORTS = {
    "import jax.numpy as jnp; print(jnp.arange(2.0).dtype)": "float64",
    "from jax.numpy import arange; print(arange(2.0).dtype)": "float64",
    "from jax.sharding import Mesh; from jax.numpy import arange; print(arange(2.0).dtype)": "float64",
    "import importlib.util; spec = importlib.util.find_spec('jax'); import jax; print(spec is jax.__spec__, jax.config.jax_enable_x64)": "True True",
}  # fmt: skip


@pytest.mark.parametrize("text", FIRST_IMPORTS)
def test_each_way_to_import_jax_first_applies_flags(jobs: Jobs, tmp_path: Path, text: str) -> None:
    (tmp_path / "program.py").write_text(f"{SETS.format(settings={'enable_x64': '1'})}\n{text}")
    ended = jobs.run("-v", "-n", 2, "-d", 1, "--preload", "auto", "program.py", cwd=tmp_path)
    shown = FIRST_IMPORTS[text]
    assert sorted(ended.stdout.splitlines()) == [f"[{rank}] {shown}" for rank in (0, 1)]
    assert "ranks 0-1 forked after importing jax" in ended.report


@pytest.mark.parametrize(
    ("program", "missed"),
    [
        (SETS.format(settings={"enable_x64": "maybe"}), "JAX_ENABLE_X64"),
        ("import os; os.environ['OPENBLAS' + '_NUM_THREADS'] = '1'", "OPENBLAS_NUM_THREADS"),
        ("import os; from sys import path; path.insert(0, os.path.abspath('other'))", "opt_einsum"),
        ("import sys; sys.modules['opt_einsum'] = sys", "opt_einsum"),
    ],
)
def test_what_cannot_be_applied_is_said_with_quiet_too(
    jobs: Jobs, tmp_path: Path, program: str, missed: str
) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "opt_einsum.py").touch()
    (tmp_path / "program.py").write_text(f"{program}\nimport jax")
    ended = jobs.run("-q", "-n", 2, "--preload", "auto", "program.py", cwd=tmp_path)
    assert ended.status == 0, ended.stderr
    assert ended.report.splitlines()[0] == (
        f"--preload: jax had been imported when the program changed {missed}, and did not see "
        "the change: use -x NAME=VALUE, or --preload none"
    )

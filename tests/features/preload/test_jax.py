"""--preload with JAX: a forked rank is what any other rank is, only sooner."""

from pathlib import Path

import pytest
from jobs import Jobs

pytestmark = pytest.mark.afresh  # a test says itself which ranks are forked

NOT_JOINED = (
    "no rank called jax.distributed.initialize(): these ran as 2 separate single-process jobs"
)


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
SETTINGS = {
    "flags that are set again": "JAX_PLATFORMS='cpu', JAX_COMPILATION_CACHE_DIR='cache', JAX_ENABLE_X64='true', JAX_DEBUG_NANS='1', JAX_DISABLE_JIT='Y', JAX_NUMPY_RANK_PROMOTION='warn', JAX_DEFAULT_MATMUL_PRECISION='high', JAX_TRACEBACK_IN_LOCATIONS_LIMIT='3', JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS='2.5'",
    "a value that jax changes": "JAX_ENABLE_X64='1', JAX_PLATFORM_NAME='CPU'",
    "a value that jax refuses": "JAX_ENABLE_X64='maybe'",
}  # fmt: skip


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(name, marks=pytest.mark.every_jax if "again" in name else ())
        for name in SETTINGS
    ],
)
def test_flags_are_those_of_a_fresh_rank(jobs: Jobs, tmp_path: Path, settings: str) -> None:
    text = f"import os; os.environ.update({SETTINGS[settings]}){SHOWS}"
    (tmp_path / "program.py").write_text(text)
    env = {"JAX_PLATFORMS": ""}
    ways: tuple[list[str], ...] = ([], ["--preload", "jax"])
    fresh, forked = (
        jobs.run("-v", "-n", 1, *words, "program.py", cwd=tmp_path, env=env) for words in ways
    )
    said = (lines[-1:] for lines in (fresh.stdout.splitlines(), forked.stdout.splitlines()))
    assert forked.status == fresh.status and len({*map(tuple, said)}) == 1, forked.stderr
    error = "ValueError: invalid truth value 'maybe' for environment 'JAX_ENABLE_X64'"
    assert (error in fresh.stderr) is (error in forked.stderr) is ("refuses" in settings)
    assert ("is started afresh" in forked.report) is ("again" not in settings)


def test_flags_are_set_in_ranks_that_have_acted(jobs: Jobs, tmp_path: Path) -> None:
    """Such a rank runs on: it never acts twice."""
    (tmp_path / "program.py").write_text(
        "import os, sys; os.mkdir(f\"run-{os.environ['JAX_PROCESS_ID']}\")\n"
        "os.environ['JAX_DEFAULT_MATMUL_PRECISION'] = sys.argv[1]\n"
        "import jax; print(jax.config.jax_default_matmul_precision)"
    )
    words = ["-n", 2, "--preload", "jax", "program.py", "high"]
    ended = jobs.run(*words, cwd=tmp_path)
    assert sorted(ended.stdout.splitlines()) == ["[0] high", "[1] high"], ended.stderr
    assert "--preload" not in ended.report


MINE = "import jax, numpy, jax.numpy as jnp; X64 = jax.config.jax_enable_x64"
X64 = "os.environ['JAX_ENABLE_X64'] = '1'"
SHOWN = "print(jax.numpy.arange(2.).dtype, len(jax.devices()), jax.config.jax_platforms)"
NOT_SEEN = (
    "--preload: {} had been imported when the program changed {}, and did not see the change: "
)
NOT_SEEN += "use -x NAME=VALUE, or --preload none"
ORDERS = {
    f"import numpy; {X64}; import jax; {SHOWN}": "float64 2 cpu",
    f"import jax; {X64}; import numpy; {SHOWN}": "float32 2 cpu",
    f"{X64}; del os.environ['JAX_PLATFORMS']; from mine import jax; {SHOWN}": "float64 2 None",
    f"from mine import jax; {X64}; import jax; {SHOWN}": "float32 2 cpu",
    f"os.environ['JAX_NUM_CPU_DEVICES'] = '3'; from jax._src import api; import jax; {SHOWN}": "float32 3 cpu",
}  # fmt: skip


def test_the_first_import_of_jax_counts(jobs: Jobs, tmp_path: Path) -> None:
    """Whoever imports it; each rank in another order."""
    (tmp_path / "mine.py").write_text(MINE)
    text = f"import os; exec({[*ORDERS]}[int(os.environ['JAX_PROCESS_ID'])])"
    (tmp_path / "program.py").write_text(text)
    words = ["-n", len(ORDERS), "-d", 2, "program.py"]
    ended = jobs.run("--preload", "jax,mine", *words, cwd=tmp_path)
    shown = [f"[{rank}] {line}" for rank, line in enumerate(ORDERS.values())]
    assert sorted(ended.stdout.splitlines()) == shown, ended.stderr


MISSED = {
    "import jax; jax.config.update('jax_enable_x64', True); import mine": ("mine", "jax.config"),
    f"{X64}; os.environ['TF_CPP_MIN_LOG_LEVEL'] = '3'; import jax; assert jax.config.jax_enable_x64": ("jax", "TF_CPP_MIN_LOG_LEVEL"),
    "os.environ.update(XLA_FLAGS='', PYTHONHASHSEED='0', LD_LIBRARY_PATH='/'); import mine": None,
}  # fmt: skip


@pytest.mark.parametrize("program", MISSED)
def test_settings_made_after_the_preloaded_import_are_reported(
    jobs: Jobs, tmp_path: Path, program: str
) -> None:
    """Where the rank has printed something; otherwise it is started afresh."""
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "program.py").write_text("import os; print('seen'); " + program)
    ended = jobs.run("-n", 2, "--preload", "jax,mine", "program.py", cwd=tmp_path)
    assert ended.status == 0, ended.stderr
    missed = MISSED[program]
    said = [line for line in ended.report.splitlines() if line != NOT_JOINED]
    assert said == ([NOT_SEEN.format(*missed)] if missed else [])


def test_preloaded_module_that_changes_jax_flags_prevents_forking(
    jobs: Jobs, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text("import jax; jax.config.update('jax_enable_x64', True)")
    (tmp_path / "program.py").write_text("import jax; print(jax.config.jax_enable_x64)")
    ended = jobs.run("-n", 2, "--preload", "jax,mine", "program.py", cwd=tmp_path)
    assert sorted(ended.stdout.splitlines()) == ["[0] False", "[1] False"]
    assert "--preload: importing mine changes flags of JAX; the ranks" in ended.report

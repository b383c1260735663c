"""--compile-once and --compile-cache change when programs are compiled, and no bit of a result."""

import json
import os
import re
import signal
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from jobs import PROGRAMS, Jobs

PROGRAM = PROGRAMS / "compiled_once.py"
# jax 0.6 does not let ranks share what they compile.
SHARES = not version("jax").startswith("0.6.")


def digests(
    jobs: Jobs, folder: Path, options: list[object], *kinds: str, **environ: str
) -> tuple[dict[str, list[str]], list[dict[str, Any]]]:
    """What each rank has printed, and what the record says of its programs."""
    report = folder / "run.json"
    ended = jobs.run(
        *["-n", 2, "-d", 2, "--report", report, *options, PROGRAM, *kinds],
        cwd=PROGRAMS,
        env=environ,
        limit=180,
    )
    assert ended.status == 0, ended.stderr
    assert "warn" not in ended.stderr.lower()
    lines = [line for line in ended.stdout.splitlines() if "Gloo" not in line and line[3:].strip()]
    [attempt] = json.loads(report.read_text())["attempts"]
    compiled = [rank["compiled"] or {} for rank in attempt["ranks"]]
    return {mark: [x for x in lines if x.startswith(mark)] for mark in ("[0]", "[1]")}, compiled


# Programs that need more than a copy: bound to their process, in threads, or not equal in all ranks.
BOUND = ("donate", "call_back", "partition", "on_each_device", "differ", "serialize")


@pytest.mark.timeout(600)  # it compiles much
@pytest.mark.skipif(not SHARES, reason="jax 0.6 shares nothing, and may hang over this program")
@pytest.mark.parametrize(
    "kinds",
    [pytest.param(BOUND, id="bound"), pytest.param((), marks=pytest.mark.nightly, id="all")],
)
def test_shared_compilation_gives_bit_identical_results(
    jobs: Jobs, tmp_path: Path, kinds: tuple[str, ...]
) -> None:
    plain, compiled = digests(jobs, tmp_path, ["--compile-once", "off"], *kinds)
    assert compiled == [{}, {}]
    cache: list[object] = ["--compile-cache", tmp_path / "cache"]
    cold, had = digests(jobs, tmp_path, cache, *kinds)
    assert cold == plain
    assert all(rank["programs_loaded"] for rank in had)
    warm, has = digests(jobs, tmp_path, cache, *kinds)
    assert warm == plain
    loaded = [[rank["programs_loaded"] for rank in ranks] for ranks in (had, has)]
    assert all(then < now for then, now in zip(*loaded, strict=True))  # not those that are bound


def test_single_rank_loads_what_an_earlier_job_has_compiled(jobs: Jobs, tmp_path: Path) -> None:
    options = ["-n", 1, "-d", 1, "-v", "--compile-cache", tmp_path / "cache"]
    program = "import jax; print(jax.jit(lambda x: x * 2 + 1)(jax.numpy.ones(3)).sum())"
    cold, warm = (jobs.run(*options, sys.executable, "-c", program) for _ in range(2))
    assert cold.status == warm.status == 0, warm.stderr
    assert cold.stdout == warm.stdout
    assert re.search(r"--compile-once: [1-9]\d* programs? compiled in", cold.report)
    assert re.search(r"--compile-once: 0 programs compiled, [1-9]\d* loaded", warm.report)


@pytest.mark.every_jax
def test_jax_cache_serves_all_ranks(jobs: Jobs, tmp_path: Path) -> None:
    """What JAX writes of a program that was loaded can be run by rank 0 of the next job."""
    settings = {
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "jax"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    kinds = ["train", "differ"]  # without threads, whose half-written files JAX's cache reads
    cold, _ = digests(jobs, tmp_path, [], *kinds, **settings)
    warm, compiled = digests(jobs, tmp_path, [], *kinds, **settings)
    assert warm == cold
    if SHARES:
        assert not any(rank.get("programs_compiled") for rank in compiled)


@pytest.mark.skipif(not SHARES, reason="jax 0.6 does not let ranks share")
def test_next_rank_compiles_if_the_first_is_killed(jobs: Jobs, tmp_path: Path) -> None:
    program = [PROGRAMS / "compiling_fails.py", "killed", tmp_path / "started"]
    running = jobs.start("-n", 3, "--on-rank-failure", "continue", *program)
    pid = int(running.read_until("\n", 1).split("compiles ")[1])
    os.kill(pid, signal.SIGKILL)
    ended = running.finish()
    assert ended.stdout.count("result 4.0") == 2


@pytest.mark.skipif(not SHARES, reason="jax 0.6 does not let ranks share")
def test_frames_of_the_hook_are_not_in_tracebacks(jobs: Jobs, tmp_path: Path) -> None:
    program = [PROGRAMS / "compiling_fails.py", "raise", tmp_path / "started"]
    ended = jobs.run("-n", 2, *program)
    assert "RuntimeError: no compiler" in ended.stderr
    assert "mcjax_launch/" not in ended.stderr


def test_cached_programs_are_compared(jobs: Jobs, tmp_path: Path) -> None:
    job = ["-n", 2, "-d", 1, "--grace", "1", "--compile-cache", tmp_path]
    program = [PROGRAMS / "diverging.py", "code"]
    assert "result" in jobs.run(*job, *program, cwd=PROGRAMS).stdout
    ended = jobs.run(*job, "--verify-spmd", *program, cwd=PROGRAMS)
    assert "--verify-spmd: the ranks run different programs" in ended.report

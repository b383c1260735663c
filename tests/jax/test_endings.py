"""How ranks of real JAX end: what they have written, and which of them are blamed."""

import json
from pathlib import Path

import pytest
from jobs import PROGRAMS, Jobs
from terminal import Terminal

PROGRAM = PROGRAMS / "ending.py"
GRACE = ["--grace", "20"]  # far more than the ends of all ranks take


def written(folder: Path, rank: int) -> tuple[str, ...]:
    """Return what a rank has left behind."""
    files = (folder / f"{rank}.csv", folder / f"{rank}.log")
    texts = [file.read_text() if file.exists() else "" for file in files]
    return *texts, *(path.name for path in folder.glob(f"scratch {rank} *"))


WHOLE = ("loss\n", "kept in memory\n")


ENDS = [
    ("raise", 1, 1, "ValueError: bad batch"),
    ("exit", 0, 7, "exit status 7"),
    ("shutdown at exit", 1, 1, "ValueError: bad batch"),
]


@pytest.mark.every_jax
@pytest.mark.parametrize(("way", "culprit", "status", "words"), ENDS)
def test_no_rank_loses_what_it_wrote(
    jobs: Jobs, tmp_path: Path, way: str, culprit: int, status: int, words: str
) -> None:
    """The other ranks come to JAX's exit barrier, and so does the rank that fails."""
    ended = jobs.run("-n", 3, "-d", 1, *GRACE, PROGRAM, way, tmp_path, culprit)
    assert ended.status == status, ended.stderr
    assert f"rank {culprit} failed: {words}" in ended.report
    assert "the 2 other ranks: exited with 0" in ended.report
    assert [written(tmp_path, rank) for rank in range(3)] == [WHOLE] * 3


@pytest.mark.every_jax
def test_ranks_in_a_collective_end_with_the_rank_that_failed(jobs: Jobs, tmp_path: Path) -> None:
    ended = jobs.run("-n", 2, "-d", 1, *GRACE, PROGRAM, "wait", tmp_path, 1)
    assert ended.status == 1, ended.stderr
    assert "rank 1 failed: ValueError: bad batch" in ended.report
    assert "the other rank: failed as a consequence" in ended.report
    assert [written(tmp_path, rank) for rank in range(2)] == [WHOLE] * 2


@pytest.mark.parametrize("culprit", [0, 1])
def test_the_grace_bounds_the_end_of_a_failed_rank(
    jobs: Jobs, tmp_path: Path, culprit: int
) -> None:
    ended = jobs.run("-n", 2, "-d", 1, "--grace", "1", PROGRAM, "hang", tmp_path, culprit)
    assert ended.status == 1, ended.stderr
    assert f"rank {culprit} failed: ValueError: bad batch" in ended.report


@pytest.mark.every_jax
def test_ctrl_c_ends_all_ranks_soon(jobs: Jobs, tmp_path: Path) -> None:
    """Each rank ends as Python ends, and none counts as failed."""
    report = tmp_path / "report.json"
    options = ["-n", 3, "-d", 1, "--grace", "20", "--report", report]
    terminal = Terminal(jobs, *options, PROGRAM, "interrupt", tmp_path, 0)
    for _ in range(3):
        terminal.until("ready")
    terminal.type("\x03")
    assert terminal.finish() == 130
    assert "all 3 ranks: ended by SIGINT" in terminal.shown
    terminal.close()
    assert [written(tmp_path, rank) for rank in range(3)] == [WHOLE] * 3
    [attempt] = json.loads(report.read_text())["attempts"]
    assert [rank["outcome"] for rank in attempt["ranks"]] == ["stopped"] * 3
    ended_s = max(rank["ended_s"] for rank in attempt["ranks"])
    assert ended_s - attempt["cause"]["at_s"] < 10, attempt  # half of the grace


CAUGHT = """
import logging, jax, sys
from jax.experimental import multihost_utils
def main():
    if jax.process_index() == 1:
        raise ValueError("bad batch")
    multihost_utils.sync_global_devices("step")
jax.distributed.initialize()
multihost_utils.sync_global_devices("started")
try:
    main()
except ValueError:
    logging.exception("training failed")
"""


def test_logged_exception_of_a_finished_rank_is_named(jobs: Jobs, tmp_path: Path) -> None:
    """Without a launcher's word on it the ranks that waited for that rank seem to be to blame."""
    (tmp_path / "caught.py").write_text(CAUGHT)
    environment = {"XLA_FLAGS": "--xla_cpu_collective_timeout_seconds=3"}
    ended = jobs.run("-n", 2, "-d", 1, tmp_path / "caught.py", env=environment)
    assert "rank 1 logged ValueError: bad batch, at " in ended.report, ended.stderr

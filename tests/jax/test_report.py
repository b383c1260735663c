"""The record of real runs of JAX that fail."""

from pathlib import Path

from jobs import PROGRAMS, Jobs
from records import read


def test_an_exception_in_jax(jobs: Jobs, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    done = jobs.run("-n", 3, "-d", 1, "--report", path, PROGRAMS / "fail.py", "raise")
    assert done.status == 1
    (attempt,) = read(path)["attempts"]
    culprit = attempt["ranks"][1]
    assert culprit["exception"]["headline"] == culprit["words"] == "ValueError: bad batch"
    assert culprit["exception"]["line"] == 'raise ValueError("bad batch")'
    assert culprit["exit_status"] == 1
    assert culprit["failed_s"] == attempt["cause"]["at_s"] < culprit["ended_s"]
    for rank in attempt["ranks"]:
        times = [rank[name] for name in ("started_s", "joining_s", "joined_s", "ended_s")]
        assert times == sorted(times)


def test_a_rank_that_is_to_blame(jobs: Jobs, tmp_path: Path) -> None:
    """The cause is the rank that took the others down, whether it failed itself or not."""
    path = tmp_path / "run.json"
    program = PROGRAMS / "other_coordinates.py"
    done = jobs.run("-n", 3, "-d", 1, "--report", path, program, "process_id")
    found = read(path)
    cause = found["attempts"][0]["cause"]
    assert found["words"] in done.report.splitlines()
    assert "rank 1 called initialize() at " in found["words"]
    assert (cause["kind"], cause["rank"], cause["alike"]) == ("rank", 1, [1])
    assert cause["at_s"] is not None

"""A rank that makes the others wait is named, and ranks that are equal are not."""

import json
import re
from pathlib import Path

import pytest
from jobs import PROGRAMS, Jobs


@pytest.mark.only_linux("looks at ranks")
@pytest.mark.parametrize("how", ["work", "equal"])
def test_slow_rank_is_named_beside_collectives(how: str, jobs: Jobs, tmp_path: Path) -> None:
    """One that works in NumPy, with a sum over all ranks in each step."""
    report = tmp_path / "run.json"
    options = ["-n", 3, "-d", 1, "--report", report, PROGRAMS / "uneven.py", how, "15"]
    ended = jobs.run(*options, limit=180, env={"MCJAX_TEST_TIME_SCALE": "0.1"})
    assert ended.status == 0, ended.stderr
    named = re.findall(r"rank (\d) is slow: .*; it was in load_batch at \S*uneven.py", ended.report)
    attempt = json.loads(report.read_text())["attempts"][0]
    if how == "equal":
        assert named == [] and attempt["slow"] == []
    else:
        assert named == ["1", "1"]  # while it runs, and at the end
        assert [entry["rank"] for entry in attempt["slow"]] == [1]
    doing = [{what for _, what, _ in rank["looks"]} for rank in attempt["ranks"]]
    assert "jax" in doing[0] and "elsewhere" in doing[1]

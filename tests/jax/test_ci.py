"""The workflow in the documentation does what the page says."""

import re
import shlex
from pathlib import Path
from typing import Any

import github_log
import pytest
import yaml
from jobs import Jobs

PAGE = Path(__file__).parents[2] / "docs" / "cookbook.md"
TESTS = """
import jax
from jax.experimental.multihost_utils import process_allgather

def test_sum():
    assert jax.local_device_count() == 2
    assert process_allgather(jax.process_index()).sum() == 1

def test_apart():
    assert jax.process_index() != 1
    process_allgather(jax.process_index())
"""


def block(language: str) -> str:
    """Return the page's first block in a language."""
    found = re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return str(found[0])


def steps() -> list[dict[str, Any]]:
    (job,) = yaml.safe_load(block("yaml"))["jobs"].values()
    return list(job["steps"])


def project(folder: Path) -> list[str]:
    """A project with the page's conftest; the arguments of the workflow's mcjax-launch."""
    tests = folder / "tests" / "multiprocess"
    tests.mkdir(parents=True)
    (tests / "conftest.py").write_text(block("python"))
    (tests / "test_two.py").write_text(TESTS)
    (line,) = [step["run"] for step in steps() if step.get("run", "").startswith("mcjax-launch")]
    return shlex.split(line)[1:]


def test_uploaded_files_are_those_that_are_written() -> None:
    run = " ".join(step.get("run", "") for step in steps())
    (upload,) = [step["with"] for step in steps() if "path" in step.get("with", {})]
    assert all(path in run.split() for path in upload["path"].split())


@pytest.mark.long
def test_failure_on_one_rank_is_annotated(jobs: Jobs, tmp_path: Path) -> None:
    """It ends at once, though the other rank waits in a collective."""
    words = project(tmp_path)
    ended = jobs.run(*words, cwd=tmp_path, env={"GITHUB_ACTIONS": "true", "NO_COLOR": "1"})
    assert ended.status == 1
    (error,) = github_log.read(ended.stderr).commands
    test = "tests/multiprocess/test_two.py"
    told = f"rank 1 failed: AssertionError: assert 1 != 1, in {test}::test_apart"
    assert (error.name, error.data.partition("\n")[0]) == ("error", told)
    assert "  | FAILED tests/multiprocess/test_two.py::test_apart - assert 1 != 1" in error.data
    assert (tmp_path / "run.html").exists()
    assert "collected 2 items" in (tmp_path / "logs" / "0.out").read_text()

"""GitHub's workflows run the project's own commands, and nothing is released that CI has not passed."""

import re
from typing import Any

import pytest
import yaml

from scripts import ROOT

FOLDER = ROOT / ".github" / "workflows"
WORKFLOWS: dict[str, dict[str, Any]] = {
    path.stem: yaml.safe_load(path.read_text()) for path in sorted(FOLDER.glob("*.yml"))
}


def find_steps(workflow: dict[str, Any]) -> list[dict[str, Any]]:
    return [step for job in workflow["jobs"].values() for step in job.get("steps", ())]


@pytest.mark.parametrize("name", WORKFLOWS)
def test_steps_name_commands_that_exist_and_actions_by_their_commits(name: str) -> None:
    for step in find_steps(WORKFLOWS[name]):
        for command in re.findall(r"(?:scripts|\.ci)/[\w-]+", step.get("run", "")):
            assert (ROOT / command).is_file()
        assert re.search("@[0-9a-f]{40}$", step.get("uses", "@" + "0" * 40))


def test_release_waits_for_ci_on_its_commit() -> None:
    jobs = WORKFLOWS["release"]["jobs"]
    assert jobs["ci"]["uses"] == "./.github/workflows/ci.yml"
    assert (jobs["build"]["needs"], jobs["publish"]["needs"]) == ("ci", "build")


@pytest.mark.parametrize("name", ["ci", "macos", "nightly"])
def test_results_of_failed_jobs_are_kept(name: str) -> None:
    jobs = [job for job in WORKFLOWS[name]["jobs"].values() if "build/tests" in str(job)]
    assert jobs
    for job in jobs:
        assert "TEST_LOGS" in str(job)
        *_, last = job["steps"]
        assert last["if"] == "failure()" and last["with"]["path"] == "build/tests/"

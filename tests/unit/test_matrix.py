"""What was tested, as docs/security.md has it, is what .ci/run tests."""

import json
import re
from pathlib import Path

import pytest
from conftest import kind_of

from scripts import script

matrix = script("matrix")


def listed() -> list[tuple[str, str]]:
    """The pairs of docs/security.md: Python's minor version and jax's version."""
    row = re.compile(r"^\| (3\.\d+)\.\S+ \| (\S+) \|", re.MULTILINE)
    return row.findall(matrix.REQUIREMENTS.read_text())


def test_listed_pairs_are_those_that_run() -> None:
    (newest, _), *others = listed()
    workflow = matrix.ROOT / ".github" / "workflows" / "ci.yml"
    assert f"python-version: |\n            {newest}\n" in workflow.read_text()
    oldest = matrix.oldest_jax()
    run = [name.split("-") for name in matrix.find_run_in_ci()]
    assert [(python, jax in (oldest, f"{oldest}.0")) for python, jax in others] == [
        (python, jax == "oldest") for python, jax in run
    ]


def test_classifiers_are_the_pythons_of_the_pairs() -> None:
    classifiers = re.findall(r"Python :: (3\.\d+)", matrix.PYPROJECT.read_text())
    assert classifiers == [*matrix.JAXES]


def test_workflow_runs_the_other_pairs(capsys: pytest.CaptureFixture[str]) -> None:
    assert matrix.main(["--json"]) == 0
    names = [pair["name"] for pair in json.loads(capsys.readouterr().out)]
    known = matrix.find_known([])
    assert sorted([*names, *matrix.find_run_in_ci()]) == sorted(known) and len(names) > 3


def test_second_pair_of_a_python_reads_the_files_of_jax_alone() -> None:
    every, jax = (
        [Path(name) for name in matrix.choose_tests(alone)[2:]] for alone in (False, True)
    )
    assert jax == [file for file in every if kind_of(file.relative_to(matrix.TESTS)) == "jax"]
    names = {file.relative_to(matrix.TESTS).as_posix() for file in every}
    assert {"jax/test_stall.py", "features/preload/test_unit.py", "process/test_exits.py"} <= names


def test_what_scripts_install_is_a_group_or_an_extra() -> None:
    root = matrix.ROOT
    files = [*root.glob("scripts/*"), *root.glob(".ci/*"), *root.glob(".github/workflows/*")]
    text = "\n".join(path.read_text() for path in files if path.is_file())
    names = re.findall(r"^(?: *- run: )?scripts/install ([a-z ]+?)(?: &&| #|$)", text, re.MULTILINE)
    assert len(names) > 5
    for name in " ".join(names).split():
        assert matrix.list_requirements(name)

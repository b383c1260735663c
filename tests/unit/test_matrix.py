"""What was tested, as docs/security.md has it, is what .ci/run tests."""

import json
import re
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import estimate_place, kind_of, outcomes

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


class Marked:
    """A test with these marks."""

    def __init__(self, *marks: str) -> None:
        self.marks = marks

    def get_closest_marker(self, name: str) -> object:
        return name if name in self.marks else None


def test_long_tests_come_first() -> None:
    tests = [Marked("process"), Marked("jax", "long"), Marked(), Marked("jax"), Marked("unit")]
    ordered = sorted(tests, key=estimate_place)  # type: ignore[arg-type]
    assert [test.marks[-1:] for test in ordered] == [
        ("long",),
        ("jax",),
        ("process",),
        ("unit",),
        (),
    ]


def ran(python: str, **tests: str) -> dict[str, Any]:
    """Return a run of tests, whose names are letters: those in upper case failed."""
    outcomes = {kind: {name.lower(): name.islower() for name in tests[kind]} for kind in tests}
    return {"python": python, "jax": "0.12.0", "tests": outcomes}


RUNS = (
    ran("3.13.0", unit="abc", process="deF"),
    ran("3.11.7", unit="abG"),
    ran("3.13.0", process="f", lab="H"),  # what has failed, once more
    ran("3.13.0", process="d", lab="h"),
)


def test_a_test_counts_once_however_often_it_is_run() -> None:
    assert matrix.table(matrix.merged(RUNS)).splitlines() == [
        "| Python | jax | tests/unit | tests/process | tests/jax | tests/lab |",
        "| --- | --- | --- | --- | --- | --- |",
        "| 3.13.0 | 0.12.0 | 3 | 3 |  | 1 |",
        "| 3.11.7 | 0.12.0 | 2 |  |  |  |",
    ]


def test_test_with_failing_teardown_has_not_passed() -> None:
    def report(name: str, when: Any, outcome: Any) -> pytest.TestReport:
        return pytest.TestReport(f"tests/unit/x.py::{name}", ("x.py", 1, ""), {}, outcome, "", when)

    reports = {
        "": [report("a", "setup", "passed"), report("b", "teardown", "passed")],
        "passed": [report("a", "call", "passed"), report("b", "call", "passed")],
        "error": [report("a", "teardown", "failed")],
        "skipped": [report("c", "setup", "skipped")],
    }
    reporter: Any = SimpleNamespace(stats=reports)
    expected = {
        "tests/unit/x.py::a": False,
        "tests/unit/x.py::b": True,
        "tests/unit/x.py::c": False,
    }
    assert outcomes(reporter) == {"unit": expected}


def test_page_that_claims_too_many_tests_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page, counts = tmp_path / "page.md", tmp_path / "counts"
    page.write_text(
        "<!-- scripts/matrix -->\n| 3.13.0 | 0.11 | 5 | 3 |  | 1 |\n<!-- /scripts/matrix -->"
    )
    counts.write_text("\n".join(map(json.dumps, RUNS)))
    monkeypatch.setattr(matrix, "REQUIREMENTS", page)
    matrix.write_table(counts)
    told = "claimed 5 passed tests of tests/unit, where there are 4: commit it as it is now\n"
    assert capsys.readouterr().err == f"docs/security.md {told}"
    assert f"Run on {date.today():%-d %B %Y}.\n\n| Python |" in page.read_text()
    matrix.write_table(counts)
    assert capsys.readouterr().err == ""

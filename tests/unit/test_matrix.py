"""What was tested, as docs/security.md has it, is what .ci/run tests."""

import re

from scripts import ROOT, script

matrix = script("matrix")


def listed() -> list[tuple[str, str]]:
    """The pairs of docs/security.md: Python's minor version and jax's version."""
    row = re.compile(r"^\| (3\.\d+)\.\S+ \| (\S+) \|", re.MULTILINE)
    return row.findall(matrix.REQUIREMENTS.read_text())


def test_the_pairs_that_are_listed_are_those_that_are_run() -> None:
    [line] = re.findall(r"scripts/matrix run (.+)", (ROOT / ".ci" / "run").read_text())
    classifiers = re.findall(r"Python :: 3\.(\d+)", matrix.PYPROJECT.read_text())
    (newest, _), *others = listed()
    assert newest == f"3.{max(map(int, classifiers))}"
    oldest = matrix.oldest_jax()
    run = [name.split("-") for name in line.split()]
    assert [(python, jax in (oldest, f"{oldest}.0")) for python, jax in others] == [
        (python, jax == "oldest") for python, jax in run
    ]


def test_runs_with_the_same_versions_are_one_row() -> None:
    runs = [
        {"python": "3.13.0", "jax": "0.12.0", "passed": {"unit": 10, "process": 5}},
        {"python": "3.11.7", "jax": "0.6.0", "passed": {"unit": 9}},
        {"python": "3.13.0", "jax": "0.12.0", "passed": {"process": 1, "lab": 2}},
    ]
    assert matrix.table(runs).splitlines() == [
        "| Python | jax | tests/unit | tests/process | tests/jax | tests/lab |",
        "| --- | --- | --- | --- | --- | --- |",
        "| 3.13.0 | 0.12.0 | 10 | 6 |  | 2 |",
        "| 3.11.7 | 0.6.0 | 9 |  |  |  |",
    ]

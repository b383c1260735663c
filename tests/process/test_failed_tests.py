"""Runners of tests exit after they have reported what failed: the first failed test is the cause."""

import sys
from pathlib import Path

import pytest
from jobs import Ended, Jobs
from stand_in_jax import make_stand_in

PYTEST = """
import os, pytest
RANK = int(os.environ["JAX_PROCESS_ID"])

def test_fine():
    pass

@pytest.mark.xfail
def test_expected():
    assert 0

def test_skipped():
    pytest.skip("no data")

def test_caught():
    with pytest.raises(ZeroDivisionError):
        1 / 0

@pytest.mark.parametrize("n", [1, 2])
def test_sum(n):
    assert n + RANK < 3, "too much"

def test_other():
    {"": 0}["a" * RANK]
"""
FIXTURE = """
import pytest
@pytest.fixture
def data():
    raise OSError("no data")
def test_it(data):
    pass
"""
UNITTEST = """
import os, unittest
RANK = int(os.environ["JAX_PROCESS_ID"])

class Test(unittest.TestCase):
    def test_a(self):
        self.assertEqual(1, 1)

    @unittest.expectedFailure
    def test_b(self):
        self.assertEqual(1, 2)

    def test_c(self):
        for part in range(3):
            with self.subTest(part=part):
                self.assertLess(part, 3 - RANK)

    def test_d(self):
        if RANK:
            raise OSError("no data")

if __name__ == "__main__":
    unittest.main()
"""
BY_ITSELF = """
import sys, pytest
if __name__ == "__main__":
    sys.exit(pytest.main(["-q", *sys.argv[1:], "test_it.py"]))
"""


@pytest.fixture
def run(jobs: Jobs, tmp_path: Path) -> "Run":
    return Run(jobs, tmp_path)


class Run:
    def __init__(self, jobs: Jobs, folder: Path) -> None:
        self._jobs = jobs
        self._folder = folder

    def __call__(self, test: str, *words: object, **files: str) -> Ended:
        """Run a command where `test_it.py` and other files are, with a line for GitHub.

        By default with two ranks; with `-n 1` where all fail alike, as one may be ended before it fails.
        """
        for name, text in {"test_it": test, **files}.items():
            (self._folder / f"{name}.py").write_text(text)
        return self._jobs.run(
            *("-n", 2, "--color", "never", *words),
            cwd=self._folder,
            env={"GITHUB_ACTIONS": "true", "GITHUB_WORKSPACE": str(self._folder)},
        )


PLAIN = ["-p", "no:cacheprovider"]
RUNNERS: dict[str, list[str]] = {
    "module": ["-m", "pytest", *PLAIN],
    "quiet": ["-m", "pytest", *PLAIN, "-qq", "-r", "N", "--tb=no"],
    "no terminal": ["-m", "pytest", *PLAIN, "-p", "no:terminal"],
    "script": [str(Path(sys.executable).parent / "pytest"), *PLAIN],
    "by itself": ["program.py", *PLAIN],
    "forked": ["--preload", "pytest", "-m", "pytest", *PLAIN],
}


@pytest.mark.every_jax
@pytest.mark.parametrize("name", RUNNERS)
def test_the_first_failed_test_of_pytest_is_the_cause(run: Run, tmp_path: Path, name: str) -> None:
    words = RUNNERS[name] + ([] if name == "by itself" else ["test_it.py"])
    ended = run(PYTEST, *words, program=BY_ITSELF)
    assert ended.status == 1, ended.stderr
    what = "AssertionError: too much, in test_it.py::test_sum[2]"
    lines = ended.report.splitlines()
    at = next(at for at, line in enumerate(lines) if line.startswith("rank 1 failed"))
    assert lines[at] == f"rank 1 failed: {what}, the first of 2 failed tests"
    assert lines[at + 1].startswith(f"at {tmp_path}/test_it.py:21 in test_sum: assert n + RANK < 3")
    assert f"::error file=test_it.py,line=21,title=mcjax-launch::rank 1 failed: {what}" in (
        ended.stderr
    )


# What pytest cannot collect, or set up: as it is told, and its line.
NO_TEST = {
    "import": (
        "\nimport nosuch",
        "ModuleNotFoundError: No module named 'nosuch', in test_it.py",
        2,
    ),
    "syntax": ("\n\ndef test(:", "SyntaxError: invalid syntax, in test_it.py", 3),
    "top": ("1/0", "ZeroDivisionError: division by zero, in test_it.py", 1),
    "fixture": (FIXTURE, "OSError: no data, in test_it.py::test_it", 5),
}


@pytest.mark.parametrize("name", NO_TEST)
def test_error_that_prevents_tests_is_reported(run: Run, tmp_path: Path, name: str) -> None:
    text, told, line = NO_TEST[name]
    ended = run(text, "-n", 1, "-m", "pytest", *PLAIN, "test_it.py")
    assert f"rank 0 failed: {told}\n" in ended.report
    assert f"\nat {tmp_path}/test_it.py:{line} in " in ended.report
    assert f"::error file=test_it.py,line={line}," in ended.stderr


def test_failing_conftest_is_annotated(run: Run, tmp_path: Path) -> None:
    """As one does that calls initialize() in vain."""
    conftest = "\nraise OSError('no data')"
    ended = run(PYTEST, "-n", 1, "-m", "pytest", *PLAIN, "test_it.py", conftest=conftest)
    assert ended.status == 4
    what = f"OSError: no data, in {tmp_path}/conftest.py"
    assert f"rank 0 failed: {what}\nat {tmp_path}/conftest.py:2 in " in ended.report
    assert "::error file=conftest.py,line=2," in ended.stderr


def test_pytest_run_without_tests_fails_with_status_5(run: Run) -> None:
    ended = run(PYTEST, "-n", 1, "-m", "pytest", *PLAIN, "-k", "nosuch", "test_it.py")
    assert ended.report.startswith("rank 0 failed: exit status 5\nthe job ran")


@pytest.mark.every_jax
@pytest.mark.parametrize(
    "words", [["test_it.py"], ["-m", "unittest", "test_it"]], ids=["main", "-m"]
)
def test_the_first_failed_test_of_unittest_is_the_cause(
    run: Run, tmp_path: Path, words: list[str]
) -> None:
    ended = run(UNITTEST, *words)
    assert ended.status == 1, ended.stderr
    first, place, *_ = (line for line in ended.report.splitlines() if not line.startswith("hid "))
    module = "__main__" if words == ["test_it.py"] else "test_it"
    assert first.startswith("rank 1 failed: AssertionError: 2 not less than 2, in ")
    assert f" {module}.Test.test_c" in first
    assert first.endswith(" (part=2), the first of 2 failed tests")
    assert place.startswith(f"at {tmp_path}/test_it.py:16 in test_c: self.assertLess(part, 3")
    assert "::error file=test_it.py,line=16," in ended.stderr


@pytest.mark.parametrize(
    ("end", "told"),
    [
        ("sys.exit('no data')", "no data"),
        ("\ntry: 1/0\nexcept ZeroDivisionError: sys.exit(3)", "exit status 3, while handling Zero"),
        ("raise ValueError('x')", "ValueError: x"),
    ],
)
def test_own_error_of_the_program_precedes_its_failed_tests(run: Run, end: str, told: str) -> None:
    program = "import sys, unittest, test_it\nunittest.main(test_it, exit=False, argv=['x'])\n"
    test = UNITTEST.replace("if RANK", "if True")
    ended = run(test, "-n", 1, "program.py", program=program + end)
    assert f"rank 0 failed: {told}" in ended.report


HANGS = """
import os, time
def test_a():
    assert os.environ["JAX_PROCESS_ID"] == "0", "too early"
def test_b():
    time.sleep(1000)
"""


def test_failed_test_is_named_if_a_later_test_hangs(run: Run, tmp_path: Path) -> None:
    ended = run(HANGS, "--stall-timeout", "6", "-m", "pytest", *PLAIN, "test_it.py")
    assert ended.status == 124
    line = next(line for line in ended.report.splitlines() if "test_it.py::test_a" in line)
    assert line.startswith("rank 1 failed in test_it.py::test_a ")
    assert f"AssertionError: too early, at {tmp_path}/test_it.py:4 in test_a" in line


SORTED = """
import os
def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: item.name, reverse=os.environ["JAX_PROCESS_ID"] == os.environ["ODD"])
"""
JOINS = "import jax\njax.distributed.initialize()\ndef test_a(): pass\ndef test_b(): pass\n"


@pytest.mark.parametrize("odd", ["1", "none"])
def test_ranks_that_run_tests_in_other_orders_are_told(run: Run, tmp_path: Path, odd: str) -> None:
    make_stand_in(tmp_path)
    words = ["-x", f"ODD={odd}", "-x", f"PYTHONPATH={tmp_path}", "-m", "pytest", *PLAIN]
    ended = run(JOINS, *words, "test_it.py", conftest=SORTED)
    assert ended.status == 0, ended.stderr
    groups = "2 tests in rank 0 (first test_it.py::test_a), 2 tests in rank 1 (first test_it.py::test_b);"
    assert (groups in ended.report) == (odd == "1")
    assert ("different orders" in ended.report) == (odd == "1")

"""scripts/run-pytest: what fails runs once more, and is a warning if it passes then."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

RUN_PYTEST = Path(__file__).parents[2] / "scripts" / "run-pytest"
TESTS = """
from pathlib import Path

def test_fails_once():
    before = Path("ran").exists()
    Path("ran").touch()
    print("seen")
    assert before

def test_fails_always():
    assert not Path("broken").exists()
"""


@pytest.mark.parametrize("is_broken", [False, True])
def test_failed_tests_run_once_more(tmp_path: Path, is_broken: bool) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    if is_broken:
        (tmp_path / "broken").touch()
    flaky, logs = tmp_path / "flaky", tmp_path / "logs"
    env = {
        **os.environ,
        "FLAKY_TESTS": str(flaky),
        "TEST_LOGS": str(logs),
        "GITHUB_ACTIONS": "true",
    }
    done = subprocess.run(
        [sys.executable, str(RUN_PYTEST), "-q", "test_it.py"],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
    )
    assert done.returncode == is_broken, done.stdout + done.stderr
    assert flaky.read_text() == "test_it.py::test_fails_once\n"
    warnings = [line for line in done.stdout.splitlines() if line.startswith("::")]
    assert warnings == [
        "::warning title=Flaky test::test_it.py::test_fails_once passed when it was run once more"
    ]
    first, _ = sorted(logs.iterdir())
    assert "seen" in first.read_text()


CRASHES_ONCE = """
import os, subprocess, sys
from pathlib import Path

def test_crashes_once():
    before = Path("ran").exists()
    Path("ran").touch()
    if not before:
        subprocess.run([sys.executable, "-c", "import os; os.abort()"], check=True)
"""


def test_crash_is_not_forgiven(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(CRASHES_ONCE)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    flaky = tmp_path / "flaky"
    env = {**os.environ, "FLAKY_TESTS": str(flaky)}
    command = [sys.executable, str(RUN_PYTEST), "-q", "test_it.py"]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "a signal has killed a process:\n  test_it::test_crashes_once\n" in done.stdout
    assert not flaky.read_text()

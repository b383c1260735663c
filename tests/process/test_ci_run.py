""".ci/run and `scripts/test all`: what fails beside other steps fails the whole, with its output."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from jobs import shell_script

ROOT = Path(__file__).parents[2]
STEPS = ("install", "packages", "package", "matrix", "check", "docs", "test")
STEP = """
name=$(basename "$0")
echo "$name $*"
[ "$name" != "$BAD" ] || exit 3
"""


def run(folder: Path, command: str, **environ: str) -> tuple[int, str]:
    """Return the status of a copied script and what it printed."""
    done = subprocess.run(
        command.split(), cwd=folder, env={**os.environ, **environ}, capture_output=True, text=True
    )
    return done.returncode, done.stdout


@pytest.mark.quick
@pytest.mark.parametrize("bad", ["", *STEPS])
def test_each_step_counts(tmp_path: Path, bad: str) -> None:
    for name in STEPS:
        folder = tmp_path / (".ci" if name == "packages" else "scripts")
        folder.mkdir(exist_ok=True)
        shell_script(folder / name, STEP)
    shell_script(tmp_path / "scripts" / "size", "")
    shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci")
    status, printed = run(tmp_path, ".ci/run", BAD=bad)
    assert (status != 0) == bool(bad)
    assert ("test all\n" in printed) == (bad in ("", "test"))
    assert f"{bad or 'docs'} " in printed
    if bad not in ("", "install", "test"):
        assert printed.endswith(f".ci/run: failed: {bad}; the output is above\n")


# Statuses of the unit tests, of the lab's and of the others, and of all; 5 is that none was chosen.
STATUSES = [("0 0 0", 0), ("0 1 0", 1), ("0 0 1", 1), ("1 0 0", 1), ("5 5 5", 5), ("5 0 5", 0)]


@pytest.mark.quick
@pytest.mark.parametrize(("statuses", "whole"), STATUSES)
def test_worst_status_counts(tmp_path: Path, statuses: str, whole: int) -> None:
    (tmp_path / "scripts").mkdir()
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    shutil.copy(ROOT / "scripts" / "test", tmp_path / "scripts")
    shell_script(tmp_path / "scripts" / "install", "")
    unit, lab, others = statuses.split()
    shell_script(
        tmp_path / ".venv" / "bin" / "python",
        f'echo "ran $3"; case "$3" in unit*) exit {unit} ;; lab*) exit {lab} ;; esac; exit {others}',
    )
    status, printed = run(tmp_path, "scripts/test all")
    assert status == whole
    ran = [line.split()[1] for line in printed.splitlines() if line.startswith("ran ")]
    assert ran == ["unit", "(process", "lab"]

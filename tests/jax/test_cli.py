"""A command line that asks for a Python without jax."""

import subprocess
import sys
from pathlib import Path

from jobs import PROGRAMS, Jobs


def test_python_without_jax(jobs: Jobs, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    ended = jobs.run("--python", tmp_path / "bare/bin/python", PROGRAMS / "toy.py")
    assert ended.status == 2
    assert "has no jax: install it there" in ended.report

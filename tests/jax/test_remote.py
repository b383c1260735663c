"""A host whose Python has no jax."""

import subprocess
import sys
from pathlib import Path

from jobs import PROGRAMS, Jobs
from remote import FAKE_SSH


def test_no_jax_on_the_host(jobs: Jobs, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    (tmp_path / "hosts").write_text(f"a\nb python={tmp_path}/bare/bin/python\n")
    ended = jobs.run("--hosts", tmp_path / "hosts", "--via", FAKE_SSH, PROGRAMS / "toy.py")
    assert ended.status == 255
    assert f"host b: {tmp_path}/bare/bin/python has no jax" in ended.report

"""Whether another machine can join a job, over real ssh hosts."""

import subprocess
import sys
from pathlib import Path

import pytest
from jobs import PROGRAMS, Jobs
from remote import Lab, needs_lab

pytestmark = [needs_lab, pytest.mark.jax]


def test_mtls_keeps_out_a_host_outside_the_job(jobs: Jobs, lab: Lab, tmp_path: Path) -> None:
    done = tmp_path / "done"
    options = ("--python", sys.executable, "-d", 1)
    running = lab.start(jobs, "jh1,jh2", *options, PROGRAMS / "staying.py", done)
    address = running.read_until("\n", 2).partition("joined ")[2].split()[0]
    assert address.startswith("10.77.0.11:")
    intruder = [*lab.entering("jh3"), sys.executable, str(PROGRAMS / "intruder.py"), address]
    assert subprocess.run(intruder, capture_output=True).returncode != 0
    done.touch()
    ended = running.finish()
    lab.check_clean()
    assert (ended.status, ended.stdout.count("sum 1\n")) == (0, 2), ended.stderr

"""Ranks that the kernel ends at a limit (ulimit): which one."""

import signal
from pathlib import Path

import pytest
from jobs import Jobs, shell_script

SPINS = """
import resource
resource.setrlimit(resource.RLIMIT_CPU, (1, 20))
def spin():
    while True: pass
spin()
"""
pytestmark = pytest.mark.only_linux("the limits of an ended process")


def test_soft_limit_of_processor_time_is_named(jobs: Jobs, tmp_path: Path) -> None:
    (tmp_path / "spins.py").write_text(SPINS)
    ended = jobs.run("-n", 1, tmp_path / "spins.py")
    assert ended.status == 128 + signal.SIGXCPU
    limit = "it has used up its 1 s of processor time; raise ulimit -t"
    assert ended.report.startswith(f"rank 0 failed: killed by SIGXCPU ({limit})\n")


def test_hard_limit_of_processor_time_is_named(jobs: Jobs, tmp_path: Path) -> None:
    """As ulimit sets it: the kernel sends a SIGKILL at once."""
    script = shell_script(tmp_path / "run.sh", "ulimit -t 1; exec sh -c 'while :; do :; done'")
    ended = jobs.run("-n", 1, script)
    assert ended.status == 128 + signal.SIGKILL
    limit = "it has used up its 1 s of processor time; raise ulimit -t"
    assert ended.report.startswith(f"rank 0 failed: killed by SIGKILL ({limit})\n")


def test_file_size_limit_is_named(jobs: Jobs, tmp_path: Path) -> None:
    script = shell_script(tmp_path / "run.sh", "ulimit -f 1; exec head -c 99999 /dev/zero > file")
    ended = jobs.run("-n", 1, script, cwd=tmp_path)
    assert ended.status == 128 + signal.SIGXFSZ
    size = (tmp_path / "file").stat().st_size
    limit = f"a file has reached the limit of {size} bytes; raise ulimit -f"
    assert ended.report.startswith(f"rank 0 failed: killed by SIGXFSZ ({limit})\n")

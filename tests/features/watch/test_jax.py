"""--watch with JAX: a job of joined ranks ends with a save, and the next one joins anew."""

import signal
import subprocess
from pathlib import Path

import pytest
from jobs import Jobs

pytestmark = pytest.mark.only_linux("inotify")

PROGRAM = """
import jax, time
from jax.experimental.multihost_utils import process_allgather
jax.distributed.initialize()
total = process_allgather(jax.process_index()).sum()
print("sum", total, jax.device_count(), {text!r}, flush=True)
time.sleep({sleeps})
"""


def test_joined_job_is_run_again(jobs: Jobs, tmp_path: Path) -> None:
    """JAX catches the SIGTERM that ends the first run."""
    program = tmp_path / "train.py"
    program.write_text(PROGRAM.format(text="one", sleeps=1000))
    words = ["-v", "-n", 2, "-d", 2, "--preload", "auto", "--watch", "train.py"]
    running = jobs.start(*words, cwd=tmp_path, stderr=subprocess.STDOUT)
    running.read_until("sum", 2)
    program.write_text(PROGRAM.format(text="two", sleeps=0))
    running.read_until("waiting for the next save")
    program.write_text(PROGRAM.format(text="three", sleeps=0))
    running.read_until("waiting for the next save", 2)
    running.signal(signal.SIGINT)
    ended = running.finish()
    assert ended.status == 130, ended.stdout
    for text in ("one", "two", "three"):
        assert ended.stdout.count(f" 1 4 {text}\n") == 2, ended.stdout
    assert ended.stdout.count("ranks 0-1 forked after importing jax") == 3

"""--stall-timeout: what stands still, and what is only slow."""

import subprocess

import pytest
from jobs import Jobs


def test_idle_job_is_a_stall(jobs: Jobs) -> None:
    ended = jobs.run("-n", 2, "--stall-timeout", "1", "bash", "-c", "echo begun; sleep 100")
    assert ended.status == 124
    assert 'no Python stack: "sleep" is sleeping in the kernel' in ended.report
    assert "--stall-timeout: no rank has printed, launched or compiled for 1 s" in ended.report
    assert "initialize()" not in ended.report  # it may have nothing to do with JAX


def test_printing_job_is_no_stall(jobs: Jobs) -> None:
    program = "for i in 1 2 3 4 5; do echo $i; sleep 0.5; done"
    ended = jobs.run("-n", 1, "--stall-timeout", "1.2", "bash", "-c", program)
    assert ended.status == 0, ended.stderr


def test_a_slow_reader_is_not_a_stall(jobs: Jobs) -> None:
    running = jobs.start("--stall-timeout", "1", "bash", "-c", "yes | head -c 20000000")
    with pytest.raises(subprocess.TimeoutExpired):
        running.process.wait(timeout=2.5)
    ended = running.finish()
    assert ended.status == 0, ended.stderr
    assert ended.out.count(b"y") == 10_000_000

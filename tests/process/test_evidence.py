"""The kernel's log on GPUs and memory, in a job's record."""

import json
import os
from pathlib import Path

import pytest
from jobs import Jobs

from mcjax_launch.agent.system import out_of_memory


@pytest.mark.skipif(not os.access("/dev/kmsg", os.W_OK), reason="cannot write the kernel's log")
def test_what_the_kernel_says_of_gpus_and_memory_is_recorded(jobs: Jobs, tmp_path: Path) -> None:
    report = tmp_path / "run.json"
    told = f"launch test: NVRM: Xid: 79{', long' * 60}"
    say = f"echo 'launch test: nothing' > /dev/kmsg; echo '{told}' > /dev/kmsg"
    ended = jobs.run("--report", report, "bash", "-c", say)
    assert ended.status == 0, ended.stderr
    [attempt] = json.loads(report.read_text())["attempts"]
    lines = [line for line in attempt["kernel_log"] if "launch test" in line]
    assert lines == [f"localhost: {told}"]


def test_only_kills_are_counted(tmp_path: Path) -> None:
    """Not how often a limit was reached."""
    counter = tmp_path / "memory.events"
    counter.write_text("max 9\noom 5\noom_kill 2\noom_group_kill 1\n")
    assert out_of_memory._count(str(counter)) == 2

"""The kernel's log on GPUs and memory, in a job's record."""

import json
import os
from pathlib import Path

import pytest
from jobs import Jobs


@pytest.mark.skipif(not os.access("/dev/kmsg", os.W_OK), reason="cannot write the kernel's log")
def test_what_the_kernel_says_of_gpus_and_memory_is_recorded(jobs: Jobs, tmp_path: Path) -> None:
    report = tmp_path / "run.json"
    say = "echo 'launch test: nothing' > /dev/kmsg; echo 'launch test: NVRM: Xid: 79' > /dev/kmsg"
    ended = jobs.run("--report", report, "bash", "-c", say)
    assert ended.status == 0, ended.stderr
    [attempt] = json.loads(report.read_text())["attempts"]
    lines = [line for line in attempt["kernel_log"] if "launch test" in line]
    assert lines == ["localhost: launch test: NVRM: Xid: 79"]

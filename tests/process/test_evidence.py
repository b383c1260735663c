"""Native stacks and the kernel's log, in the record of a job that a limit ends."""

import json
import os
import shutil
import sys
from pathlib import Path

import pytest
from jobs import Jobs, shell_script

WAIT = "import time; print('up', flush=True); time.sleep(100)"


def record_of(jobs: Jobs, folder: Path, *options: object, path: str = "") -> list[str]:
    """The native stacks in the record of a job of two ranks, both ended by a limit."""
    report = folder / "run.json"
    env = {"PATH": f"{path}:{os.environ['PATH']}"} if path else {}
    ended = jobs.run(
        *("-n", 2, "--timeout", "1s", "--report", report, *options),
        *(sys.executable, "-c", WAIT),
        env=env,
    )
    assert ended.status == 124, ended.stderr
    assert "Thread" not in ended.stdout
    lines: list[str] = json.loads(report.read_text())["attempts"][-1]["native_stacks"]
    return lines


def test_native_stacks_of_all_ranks_are_recorded(jobs: Jobs, tmp_path: Path) -> None:
    shell_script(tmp_path / "py-spy", 'echo "Process $4: $*"; echo "main_loop (a.c:7)"')
    lines = record_of(jobs, tmp_path, path=str(tmp_path))
    titles = [line for line in lines if line.startswith("rank ")]
    assert [title.partition(",")[0] for title in sorted(titles)] == [
        "rank 0 on localhost",
        "rank 1 on localhost",
    ]
    for at in (0, 3):
        pid = lines[at].split()[-1].rstrip(":")
        assert lines[at + 1 : at + 3] == [
            f"Process {pid}: dump --native --pid {pid}",
            "main_loop (a.c:7)",
        ]


def test_a_slow_tool_is_killed(jobs: Jobs, tmp_path: Path) -> None:
    shell_script(tmp_path / "py-spy", "exec sleep 1000")
    lines = record_of(jobs, tmp_path, path=str(tmp_path))
    assert [line for line in lines if not line.startswith("rank ")] == [
        "no native stacks in time" for _ in lines[::2]
    ]


@pytest.mark.skipif(not shutil.which("gdb"), reason="needs gdb")
def test_gdb_shows_the_native_threads(jobs: Jobs, tmp_path: Path) -> None:
    lines = record_of(jobs, tmp_path)
    assert any(line.startswith("Thread 1 ") for line in lines), lines
    assert any("sleep" in line for line in lines)


def test_native_stacks_are_only_for_the_record(jobs: Jobs, tmp_path: Path) -> None:
    shell_script(tmp_path / "py-spy", f"touch {tmp_path}/asked")
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    ended = jobs.run("-n", 2, "--timeout", "1s", sys.executable, "-c", WAIT, env=env)
    assert ended.status == 124
    assert not (tmp_path / "asked").exists()


@pytest.mark.skipif(not os.access("/dev/kmsg", os.W_OK), reason="cannot write the kernel's log")
def test_what_the_kernel_says_of_gpus_and_memory_is_recorded(jobs: Jobs, tmp_path: Path) -> None:
    report = tmp_path / "run.json"
    say = "echo 'launch test: nothing' > /dev/kmsg; echo 'launch test: NVRM: Xid: 79' > /dev/kmsg"
    ended = jobs.run("--report", report, "bash", "-c", say)
    assert ended.status == 0, ended.stderr
    [attempt] = json.loads(report.read_text())["attempts"]
    lines = [line for line in attempt["kernel_log"] if "launch test" in line]
    assert lines == ["localhost: launch test: NVRM: Xid: 79"]

"""--stall-timeout on JAX: what stands still, and what is only slow."""

import json
import re
import signal
import subprocess
from pathlib import Path

import pytest
from jobs import PROGRAMS, Jobs


@pytest.mark.every_jax
def test_rank_missing_from_a_collective_is_a_stall(jobs: Jobs) -> None:
    ended = jobs.run(
        "-n", 3, "-d", 2, "--grace", "1", "--stall-timeout", "15", "waiting.py", "collective",
        cwd=PROGRAMS,
    )  # fmt: skip
    assert ended.status == 124
    lines = [line for line in ended.report.splitlines() if not line.startswith("hid ")]
    assert lines[0] == "stacks of 3 ranks, innermost call first:"
    # Shown together if they wait in the same place of JAX, as they mostly do.
    waiting = [line for line in lines if re.match(r"ranks 0,2:$|rank [02] \(pid ", line)]
    assert waiting == ["ranks 0,2:"] or [line[:7] for line in waiting] == ["rank 0 ", "rank 2 "]
    odd = next(number for number, line in enumerate(lines) if line.startswith("rank 1 (pid "))
    assert lines[odd + 1].endswith("waiting.py:13 in never_arrives: time.sleep(1000)")
    assert lines[odd + 1].startswith("  > ")
    at = lines.index("--stall-timeout: no rank has printed, launched or compiled for 15 s")
    assert re.fullmatch(
        r"rank 1 is in never_arrives at waiting.py:13; ranks 0,2 wait for it .* at waiting.py:\d+",
        lines[at + 1],
    )
    assert len(lines) - at <= 6


@pytest.mark.timeout(660)  # a busy machine takes long to compile
@pytest.mark.afresh  # so soon an import that forks wait for is told of as well
@pytest.mark.parametrize(("way", "limit"), [("step", []), ("compile", ["--stall-timeout", 9])])
def test_long_step_or_compilation_raises_no_alarm(
    jobs: Jobs, way: str, limit: list[object]
) -> None:
    """Neither a stall nor a picture, which would be told of after 1.5 s here."""
    words = [*limit, PROGRAMS / "slow.py", way, 12 if limit else 3]
    soon = {"MCJAX_TEST_TIME_SCALE": "0.05"}
    ended = jobs.run("-n", 2, "-d", 1, *words, env=soon, limit=600)
    assert ended.status == 0, ended.stderr
    said = [line for line in ended.report.splitlines() if not line.startswith("the job ran for ")]
    # So soon, a busy machine is told of as well that starts one rank late.
    # And ranks of which one compiles for all are at different places.
    late = re.compile(
        r".*initialize\(\)|nothing has moved for |  rank \d \w+ .*compile|  rank \d compiles "
    )
    assert [line for line in said if not late.match(line)] == []


def test_silent_steps_are_progress_and_counted(jobs: Jobs, tmp_path: Path) -> None:
    events_file, report = tmp_path / "events", tmp_path / "run.json"
    words = ["--stall-timeout", 8, "--events", events_file, "--report", report]
    ended = jobs.run("-n", 2, "-d", 1, *words, PROGRAMS / "hanging.py", "unused", 10)
    assert ended.status == 0, ended.stderr
    events = [json.loads(line) for line in events_file.read_text().splitlines()]
    counts = [event["ranks"] for event in events if event["event"] == "programs"]
    assert [rank["rank"] for rank in counts[0]] == [0, 1]
    record = json.loads(report.read_text())
    for rank in record["attempts"][-1]["ranks"]:
        assert rank["programs"] >= 70
        last = rank["last_programs"][-1]
        assert (last["number"], last["name"]) == (rank["programs"], "jit(step)")
        assert "hanging.py:" in last["where"]


@pytest.mark.parametrize("programs", [40, pytest.param(150, marks=pytest.mark.nightly)])
def test_stack_requests_do_not_disturb_compilations(jobs: Jobs, programs: int) -> None:
    options = ["-n", 2, "-d", 1, "--verify-spmd"]
    running = jobs.start(*options, PROGRAMS / "compiling.py", programs, stderr=subprocess.DEVNULL)
    running.read_until("compiling", 2)
    while running.process.poll() is None:
        running.signal(signal.SIGQUIT)
        running.read_some()
    assert running.finish().status == 0


def test_waiting_compilation_is_a_stall(jobs: Jobs) -> None:
    """As on GPUs, where ranks compile together; within a fifteenth of the time."""
    ended = jobs.run(
        "-n", 3, "-d", 1, "--grace", "1", "--stall-timeout", "6", "--compile-once", "off",
        "compiling_together.py", "program", 3,
        cwd=PROGRAMS, env={"MCJAX_TEST_TIME_SCALE": str(2 / 30)},
    )  # fmt: skip
    assert ended.status == 124, ended.stderr
    assert re.search(
        r"rank 2 compiles jit\(evaluate\) at compiling_together.py:\d+; "
        r"ranks 0-1 compile jit\(big\) at compiling_together.py:\d+",
        ended.report,
    )

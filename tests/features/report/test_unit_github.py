"""Workflow commands of GitHub Actions, read back as its runner reads them."""

import os
from pathlib import Path
from typing import Any

import github_log
import pytest
from github_log import Command
from records import attempt_of, end_of, failure, run_of, say

from mcjax_launch.features.report.github import Annotations, format_annotation, format_command
from mcjax_launch.journal.attempt import Attempt, JobOutcome
from mcjax_launch.journal.state import RunState
from mcjax_launch.journal.stop_reasons import StopReason
from mcjax_launch.journal.summary import summarize, summarize_failed_start

GLOO = "[Gloo] Rank 0 is connected to 1 peer ranks. Expected number of connected peer ranks is : 1"


def test_annotation_text_is_escaped() -> None:
    data, file = "100%\r\n%0A,::", "a,b:c%3A\nd"
    line = format_command("error", data, file, 3)
    assert line.count("\n") == 1
    assert line.startswith(
        "::error file=a%2Cb%3Ac%253A%0Ad,line=3,title=mcjax-launch::100%25%0D%0A%250A,::"
    )
    found = github_log.parsed(line.removesuffix("\n"))
    assert found == Command("error", data, {"file": file, "line": "3", "title": "mcjax-launch"})


def failed(**more: Any) -> RunState:
    state = run_of(2)
    say(state, 0, failure(**more), 1.0)
    state.on_exited(end_of(0, 1), 2.0)
    state.on_exited(end_of(1, 0), 2.0)
    return state


def annotated(state: RunState, workspace: str, level: str = "error") -> Command:
    (line,) = format_annotation(level, summarize(state), state, workspace).splitlines()
    found = github_log.parsed(line)
    assert found is not None
    return found


def test_the_root_cause_and_its_place(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    state = failed(where=f"{tmp_path}/link/a b,c/train.py:31 in step")
    found = annotated(state, str(tmp_path))
    assert found.properties == {"file": "a b,c/train.py", "line": "31", "title": "mcjax-launch"}
    assert found.data.splitlines() == list(summarize(state).lines)
    assert found.data.startswith("rank 0 failed: ValueError: x\nat /")


@pytest.mark.parametrize("where", [None, "/elsewhere/train.py:3 in step", "<string>:1 in f"])
def test_path_outside_the_repository_is_left_out(where: str | None, tmp_path: Path) -> None:
    found = annotated(failed(where=where), str(tmp_path), "warning")
    assert (found.name, found.properties) == ("warning", {"title": "mcjax-launch"})


def test_annotation_quotes_stdout_of_a_silent_exit() -> None:
    """As pytest does, whose words are on stdout."""
    state = failed(summary="exit status 1", exception="SystemExit", exited=True)
    last = [f"line {n}" for n in range(9)]
    state.ranks[0].stdout = "\n".join([*last, GLOO, ""])
    first, *others = annotated(state, "/").data.splitlines()
    assert first == summarize(state).lines[0]
    assert others[:6] == ["the last lines of its stdout:", *(f"  | {line}" for line in last[-5:])]
    assert others[6:] == list(summarize(state).lines[1:])
    state.ranks[0].stderr = f"{GLOO}\n"
    assert "stdout" in annotated(state, "/").data
    state.ranks[0].stderr = "no such file\n"
    assert "stdout" not in annotated(state, "/").data


def test_a_long_message_is_cut(tmp_path: Path) -> None:
    found = annotated(failed(traceback="x" * 900 + "\n" + ("y" * 900 + "\n") * 30), str(tmp_path))
    assert 1000 < len(found.data) <= 4000


def over(*attempts: Attempt) -> list[tuple[str, str]]:
    lines: list[str] = []
    annotations = Annotations(os.getcwd(), lines.append)
    for each in attempts:
        annotations.on_attempt(each, 0.0)
    annotations.on_job_outcome(JobOutcome(attempts[-1].summary.status, ""), 0.0)
    found = github_log.read("".join(lines)).commands
    return [(each.name, each.data.partition("\n")[0]) for each in found]


def test_the_failure_of_an_attempt_is_a_warning_if_there_is_another() -> None:
    stopped, well = RunState(), RunState()
    stopped.on_stop_reason(StopReason("stopped by SIGINT", 130), 2.0)
    first = ("warning", "rank 0 failed: ValueError: x")
    assert over(attempt_of(failed()), attempt_of(stopped)) == [
        first,
        ("error", "stopped by SIGINT"),
    ]
    assert over(attempt_of(failed()), attempt_of(well)) == [first]
    assert over(attempt_of(well)) == []


def test_error_at_the_start_is_annotated_as_such() -> None:
    away = attempt_of(RunState(), summarize_failed_start("host h: away", 255))
    assert over(attempt_of(failed()), away) == [("warning", "rank 0 failed: ValueError: x")]

"""The record of a run: what it holds, after ends of all kinds, and where it cannot be written."""

import json
import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from jobs import PROGRAMS, Jobs
from records import JOB, KILL, SEGV, TERM, end_of, failure, record_of
from remote import FAKE_SSH

from mcjax_launch import __version__
from mcjax_launch.report import record, write
from mcjax_launch.run.state import Attempt, History, RankRun, Sample, Stop

VICTIM = "Terminating process because the JAX distributed service detected fatal errors"


def ended(status: int | None, sent: tuple[int, ...] = (), **more: Any) -> RankRun:
    return RankRun(0, "h", status=status, sent=sent, **more)


# Name: (end, outcome, words, exit status, signal)
ENDS: dict[str, tuple[RankRun, str, str, int | None, str | None]] = {
    "well": (ended(0), "ended", "ended with 0", 0, None),
    "status": (ended(3), "failed", "exit status 3", 3, None),
    "signal": (ended(-SEGV), "failed", "killed by SIGSEGV (segmentation fault)", 139, "SIGSEGV"),
    "exception": (ended(1, failure=failure(joined=False)), "failed", "ValueError: x", 1, None),
    "exception that JAX holds up": (
        ended(-KILL, (KILL,), failure=failure()), "failed", "ValueError: x", 1, "SIGKILL",
    ),
    "exception, still there": (ended(None, failure=failure()), "failed", "ValueError: x", 1, None),
    "exit that JAX holds up": (
        ended(-KILL, (KILL,), failure={"status": 9, "joined": True, "exit": True}),
        "failed", "exited with status 9", 9, "SIGKILL",
    ),
    "told to end": (ended(-TERM, (TERM,)), "stopped", "ended by SIGTERM", 143, "SIGTERM"),
    "told to end, and did so well": (ended(0, (TERM,)), "ended", "ended with 0", 0, None),
    "told twice": (ended(-KILL, (KILL,)), "stopped", "killed", 137, "SIGKILL"),
    "exits, as another failed": (
        ended(3, stderr="x\nGloo AllGather failed: Connection reset by peer\n"), "consequence",
        "failed as a consequence", 3, None,
    ),
    "after the grace": (
        ended(-KILL, (TERM, KILL)), "stopped", "killed as SIGTERM was not enough", 137, "SIGKILL",
    ),
    "victim": (
        ended(-signal.SIGABRT, stderr=VICTIM), "consequence", "aborted by JAX as a consequence",
        134, "SIGABRT",
    ),
    "lost": (ended(None, lost=True), "lost", "lost with host h", None, None),
    "never started": (ended(None), "unknown", "of unknown fate", None, None),
}  # fmt: skip


@pytest.mark.parametrize("name", ENDS)
def test_the_end_of_a_rank(name: str) -> None:
    run, outcome, words, status, by = ENDS[name]
    history = History(ranks={0: run})
    attempt = Attempt(restart=0, hosts=("h",), began_at=0, seconds=1, history=history, status=1)
    (rank,) = record.attempt(attempt, 0)["ranks"]
    assert (rank["outcome"], rank["words"]) == (outcome, words)
    assert (rank["exit_status"], rank["signal"]) == (status, by)


def test_times_and_use_of_a_rank() -> None:
    history = History()
    history.planned("ab12", "127.0.0.1:1", {0: "h"}, None)
    history.started(0, 77, 0.1)
    history.hooked(0, {"joining": {}}, 0.2)
    history.hooked(0, {"joined": {"process_id": 0}}, 0.3)
    history.printed(0, 0.4)
    history.used({"0": [1.5, 2048, 1.0]}, 1.0)
    history.hooked(0, {"main": True, "failed": failure()}, 1.2345)
    history.hooked(0, {"compiling": {"name": "jit_f", "where": "", "platform": "cpu"}}, 0.5)
    history.exited(0, end_of(-KILL, [TERM, KILL], 1.75, 1024), 3.0)
    attempt = Attempt(
        restart=2, hosts=("h",), began_at=105.0, seconds=3.1, history=history, status=1,
        words=("rank 0 failed: ValueError: x", "more"),
    )  # fmt: skip
    found = record.attempt(attempt, 100.0)
    (rank,) = found.pop("ranks")
    assert found == {
        "restart": 2,
        "job_id": "ab12",
        "began_s": 5.0,
        "seconds": 3.1,
        "coordinator": "127.0.0.1:1",
        "hosts": ["h"],
        "log_dir": None,
        "exit_status": 1,
        "cause": {
            "kind": "rank",
            "rank": 0,
            "host": "h",
            "alike": [0],
            "at_s": 1.234,
            "words": "rank 0 failed: ValueError: x",
            "report": ["rank 0 failed: ValueError: x", "more"],
        },
        "divergence": [],
        "stacks": [],
        "complete": True,
    }
    assert rank == {
        "rank": 0,
        "host": "h",
        "pid": 77,
        "started_s": 0.1,
        "joining_s": 0.2,
        "joined_s": 0.3,
        "first_output_s": 0.4,
        "leaving_s": None,
        "failed_s": 1.234,
        "ended_s": 3.0,
        "outcome": "failed",
        "words": "ValueError: x",
        "exit_status": 1,
        "signal": "SIGKILL",
        "signals_sent": ["SIGTERM", "SIGKILL"],
        "exception": {
            "name": "ValueError",
            "headline": "ValueError: x",
            "where": "train.py:3 in step",
            "line": "boom()",
            "traceback": ["Traceback ...", "ValueError: x"],
        },
        "killer": None,
        "platform": "cpu",
        "compiled_last": {"name": "jit(f)", "where": None},
        "cpu_s": 1.75,
        "peak_kib": 2048,
        "samples": [[1.0, 1.5, 2048]],
        "last_lines": {"stdout": [], "stderr": []},
    }


def test_the_cause_is_what_came_first() -> None:
    history = History()
    history.planned("ab", "c", {0: "h"}, None)
    history.started(0, 1, 0.1)
    history.stopped(Stop("stopped by SIGINT", 130), 2.0)
    history.exited(0, end_of(5, [2], 0.0, 0), 2.5)
    attempt = Attempt(
        restart=0, hosts=("h",), began_at=0, seconds=3, history=history, status=130,
        words=("stopped by SIGINT",),
    )  # fmt: skip
    cause = record.attempt(attempt, 0)["cause"]
    assert (cause["kind"], cause["rank"], cause["at_s"]) == ("stop", None, 2.0)


LINES: dict[str, tuple[str, list[str]]] = {
    "nothing": ("", []),
    "lines": ("a\nb\n", ["a", "b"]),
    "no newline at the end": ("a\nb", ["a", "b"]),
    "an empty line": ("a\n\nb\n", ["a", "", "b"]),
    "a progress bar": ("x\n1%\r2%\r3%", ["x", "3%"]),
    "lines of Windows": ("a\r\nb\r\n", ["a", "b"]),
    "other separators": ("a\x0b\u2028b\n", ["a\x0b\u2028b"]),
    "many": ("".join(f"{n}\n" for n in range(100)), [str(n) for n in range(80, 100)]),
    "a long one": ("x" * 5000, ["... " + "x" * 1000]),
}


@pytest.mark.parametrize("name", LINES)
def test_last_lines(name: str) -> None:
    text, expected = LINES[name]
    assert record.last_lines(text, 10_000) == expected


def test_samples_are_thinned_but_not_their_peaks() -> None:
    samples = [Sample(at, at / 2, 9999 if at == 333 else 10) for at in range(512)]
    kept = record.thinned(samples, 40)
    assert len(kept) == 40
    assert max(sample.rss_kib for sample in kept) == 9999
    assert kept == sorted(kept, key=lambda sample: sample.at)
    assert kept[-1] == samples[-1]
    assert record.thinned(samples[:40], 40) == samples[:40]


def test_values_of_variables_are_left_out() -> None:
    words = ["--env", "TOKEN=secret", "--env", "HOME", "-q", "--", "a", "--env", "B=own"]
    left = ["--env", "TOKEN=...", "--env", "HOME", "-q", "--", "a", "--env", "B=own"]
    assert record.without_values(words) == left


def test_a_record_of_a_big_job_stays_small() -> None:
    many = record_of(256, samples=512, printed="y" * 16_384)
    assert 100_000 < len(json.dumps(many)) < 8_000_000


def test_a_record_of_many_attempts_stays_small() -> None:
    attempts = []
    for _ in range(30):
        attempts += record_of(2)["attempts"]
        record.lighten(attempts)
    kept = [one["complete"] for one in attempts]
    assert kept == [True] + [False] * 22 + [True] * 7
    assert attempts[5]["ranks"][1]["samples"] == []
    assert attempts[5]["ranks"][1]["words"] == attempts[-1]["ranks"][1]["words"]


def test_nothing_ends_the_element_that_holds_the_record() -> None:
    text = json.dumps({"a": "</script><!--\u2028é"})
    page = write.page(text)
    held = re.search(r'<script type="application/json" id="record">(.*?)</script>', page)
    assert held is not None
    assert json.loads(held[1]) == json.loads(text)
    assert "<" not in held[1]
    assert held[1].isascii()


def test_the_page_loads_nothing() -> None:
    text = write.page(json.dumps(record_of(2)))
    assert "default-src 'none'" in text  # so that it could not if it wanted
    assert not re.findall(r"https?://", text)
    assert re.findall(r"""(?:src|href)=["']?([^"'>\s]*)""", text) == ["data:,"]
    assert not re.findall(r"@import|url\(|fetch\(|XMLHttp|WebSocket|innerHTML|eval\(", text)


# --- real runs ---


def read(path: Path) -> dict[str, Any]:
    """A record, from the JSON or out of the page."""
    assert [file.name for file in path.parent.iterdir() if file.name.startswith(".")] == []
    text = path.read_text()
    if path.suffix == ".html":
        text = text.partition('id="record">')[2].partition("</script>")[0]
    found = json.loads(text)
    assert (found["format"], found["version"]) == ("mcjax-launch run", 1)
    return found  # type: ignore[no-any-return]


BURN = """
import time
block = bytearray(64 << 20)
for at in range(0, len(block), 4096): block[at] = 1
while time.process_time() < 1.2: pass
print("done")
"""


@pytest.mark.parametrize("end", ["json", "html"])
def test_a_good_end(jobs: Jobs, tmp_path: Path, end: str) -> None:
    path = tmp_path / f"run.{end}"
    done = jobs.run("-n", 2, "-x", "TOKEN=secret", "--report", path, sys.executable, "-c", BURN)
    assert (done.status, done.stderr) == (0, "")
    found = read(path)
    assert found["launcher_version"] == __version__
    assert (found["exit_status"], found["restarts"]) == (0, 0)
    assert found["words"] == "all 2 ranks ended with 0"
    assert found["program"] == [sys.executable, "-c", BURN]
    assert found["command"][-4:] == ["--", *found["program"]]
    assert "TOKEN=..." in found["command"]
    assert 1 < found["seconds"] < done.seconds
    (attempt,) = found["attempts"]
    assert attempt["cause"]["kind"] == "none"
    assert attempt["hosts"] == ["localhost"]
    for rank in attempt["ranks"]:
        times = [rank[name] for name in ("started_s", "first_output_s", "ended_s")]
        assert times == sorted(times)
        assert rank["last_lines"] == {"stdout": ["done"], "stderr": []}
        assert 1.2 <= rank["cpu_s"] < 3
        assert rank["peak_kib"] > 64 << 10
        at, cpu_s, rss_kib = rank["samples"][-1]
        assert rank["started_s"] < at < rank["ended_s"]
        assert 0 < cpu_s <= rank["cpu_s"]
        assert 64 << 10 < rss_kib <= rank["peak_kib"]


def test_it_says_where_it_is_after_a_failure_and_when_asked(jobs: Jobs, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    failed = jobs.run("--report", "run.json", "bash", "-c", "exit 3", cwd=tmp_path)
    assert failed.report.splitlines()[-1] == f"report: {path}"
    asked = jobs.run("-v", "--report", "run.json", "true", cwd=tmp_path)
    assert asked.report.splitlines()[-1] == f"report: {path}"


def test_a_failure(jobs: Jobs, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    program = "echo out; echo err >&2; test $JAX_PROCESS_ID = 0 || kill -SEGV $$; exec sleep 100"
    done = jobs.run("-n", 2, "--report", path, "bash", "-c", program)
    assert done.status == 139
    found = read(path)
    (attempt,) = found["attempts"]
    assert found["exit_status"] == attempt["exit_status"] == 139
    cause = attempt["cause"]
    assert (cause["kind"], cause["rank"], cause["host"]) == ("rank", 1, "localhost")
    assert cause["words"] == found["words"] == done.report.splitlines()[0]
    assert cause["report"] == done.report.splitlines()[:-1]
    victim, culprit = attempt["ranks"]
    assert culprit["signal"] == "SIGSEGV"
    assert culprit["signals_sent"] == []
    assert culprit["failed_s"] == culprit["ended_s"] == cause["at_s"]
    assert victim["signals_sent"] == ["SIGTERM"]
    assert victim["last_lines"] == {"stdout": ["out"], "stderr": ["err"]}


def test_restarts(jobs: Jobs, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    program = "exit $((7 - 7 * MCJAX_RESTART))"
    done = jobs.run("-n", 2, "--max-restarts", 1, "--report", path, "bash", "-c", program)
    assert done.status == 0
    found = read(path)
    assert (found["restarts"], found["words"]) == (1, "all 2 ranks ended with 0")
    first, second = found["attempts"]
    assert (first["restart"], second["restart"]) == (0, 1)
    assert (first["exit_status"], second["exit_status"]) == (7, 0)
    assert first["cause"]["kind"] == "rank"
    assert first["began_s"] + first["seconds"] + 1 <= second["began_s"]
    assert first["job_id"] != second["job_id"]


def test_a_signal(jobs: Jobs, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    running = jobs.start("-n", 2, "--report", path, "bash", "-c", "echo up; exec sleep 100")
    running.read_until("up", 2)
    running.signal(signal.SIGINT)
    assert running.finish().status == 130
    found = read(path)
    (attempt,) = found["attempts"]
    assert found["words"] == attempt["cause"]["words"] == "stopped by SIGINT"
    assert attempt["cause"]["kind"] == "stop"
    assert attempt["cause"]["at_s"] <= attempt["ranks"][0]["ended_s"]
    assert [rank["signal"] for rank in attempt["ranks"]] == ["SIGINT", "SIGINT"]


def test_a_signal_between_two_attempts(jobs: Jobs, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    running = jobs.start("--max-restarts", 3, "--report", path, "bash", "-c", "exit 7")
    assert running.process.stderr is not None
    next(line for line in running.process.stderr if b"starting again" in line)
    running.signal(signal.SIGTERM)
    assert running.finish().status == 143
    found = read(path)
    assert found["exit_status"] == 143
    assert found["words"] == "stopped by SIGTERM before another attempt"
    assert [attempt["exit_status"] for attempt in found["attempts"]] == [7]


def test_a_timeout(jobs: Jobs, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    done = jobs.run("--timeout", "1", "--report", path, "sleep", 100)
    assert done.status == 124
    found = read(path)
    assert found["words"] == "--timeout: not done after 1 s"
    assert 1 <= found["attempts"][0]["cause"]["at_s"] < 3


def test_a_host_that_cannot_be_reached(jobs: Jobs, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    done = jobs.run(
        "--hosts", "a,b", "--via", FAKE_SSH, "--report", path, "true", env={"FAKE_SSH": "key@b"}
    )  # fmt: skip
    assert done.status == 255
    found = read(path)
    assert found["exit_status"] == 255
    assert found["words"].startswith("host b: ")
    (attempt,) = found["attempts"]
    assert (attempt["hosts"], attempt["ranks"]) == (["a", "b"], [])
    assert (attempt["cause"]["kind"], attempt["job_id"]) == ("stop", None)


def test_a_host_that_is_lost(jobs: Jobs, tmp_path: Path) -> None:
    path = tmp_path / "run.html"
    program = "test $JAX_PROCESS_ID = 0 || kill -KILL $PPID; exec sleep 100"
    done = jobs.run(
        "--hosts", "a,b", "--via", FAKE_SSH, "--report", path, "bash", "-c", program
    )  # fmt: skip
    assert done.status == 255
    found = read(path)
    (attempt,) = found["attempts"]
    assert found["words"].startswith("host b: ")
    assert [rank["outcome"] for rank in attempt["ranks"]] == ["stopped", "lost"]
    assert attempt["ranks"][1]["ended_s"] is None


def test_a_program_that_cannot_be_started(jobs: Jobs, tmp_path: Path) -> None:
    program, path = tmp_path / "program", tmp_path / "run.json"
    program.write_bytes(b"\x7fELF no more")
    program.chmod(0o755)
    done = jobs.run("--report", path, program)
    assert done.status == 126
    found = read(path)
    assert found["exit_status"] == 126
    assert found["attempts"][0]["ranks"][0]["outcome"] == "unknown"


@pytest.mark.jax
def test_an_exception_in_jax(jobs: Jobs, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    done = jobs.run("-n", 3, "-d", 1, "--report", path, PROGRAMS / "fail.py", "raise")
    assert done.status == 1
    (attempt,) = read(path)["attempts"]
    culprit = attempt["ranks"][1]
    assert culprit["exception"]["headline"] == culprit["words"] == "ValueError: bad batch"
    assert culprit["exception"]["line"] == 'raise ValueError("bad batch")'
    assert culprit["exit_status"] == 1
    assert culprit["failed_s"] == attempt["cause"]["at_s"] < culprit["ended_s"]
    for rank in attempt["ranks"]:
        times = [rank[name] for name in ("started_s", "joining_s", "joined_s", "ended_s")]
        assert times == sorted(times)


@pytest.mark.jax
def test_a_rank_that_is_to_blame(jobs: Jobs, tmp_path: Path) -> None:
    """The cause is the rank that took the others down, whether it failed itself or not."""
    path = tmp_path / "run.json"
    program = PROGRAMS / "other_coordinates.py"
    done = jobs.run("-n", 3, "-d", 1, "--report", path, program, "process_id")
    found = read(path)
    cause = found["attempts"][0]["cause"]
    assert found["words"] in done.report.splitlines()
    assert "rank 1 called initialize() at " in found["words"]
    assert (cause["kind"], cause["rank"], cause["alike"]) == ("rank", 1, [1])
    assert cause["at_s"] is not None


# --- where it cannot be written ---

BAD = {
    "run.txt": "--report run.txt: write a name that ends with .json or .html",
    "no/run.json": "--report no/run.json: no such folder: {here}/no",
    "/proc/run.json": "--report /proc/run.json: cannot be written: ",
    "folder.html": "--report folder.html: cannot be written: Is a directory",
    "file/run.json": "--report file/run.json: no such folder: {here}/file",
}


@pytest.mark.parametrize("path", BAD)
def test_a_path_that_will_not_do(jobs: Jobs, tmp_path: Path, path: str) -> None:
    (tmp_path / "folder.html").mkdir()
    (tmp_path / "file").touch()
    done = jobs.run("--report", path, "echo", "started", cwd=tmp_path)
    assert (done.status, done.out) == (2, b"")
    assert done.report.startswith(BAD[path].format(here=tmp_path))
    assert done.report.count("\n") == 0


@pytest.mark.parametrize("status", [0, 3])
def test_a_folder_that_goes_away_meanwhile(jobs: Jobs, tmp_path: Path, status: int) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    program = f"rmdir {folder}; exit {status}"
    done = jobs.run("--report", folder / "run.json", "bash", "-c", program)
    assert done.status == status
    last = done.report.splitlines()[-1]
    assert last == f"--report {folder}/run.json: cannot be written: No such file or directory"


def test_what_was_there_is_replaced_whole(jobs: Jobs, tmp_path: Path) -> None:
    path, link = tmp_path / "run.json", tmp_path / "link.json"
    path.write_text("old")
    link.symlink_to(path)
    assert jobs.run("--report", link, "true").status == 0
    assert link.is_symlink()
    assert read(path)["exit_status"] == 0
    assert sorted(os.listdir(tmp_path)) == ["link.json", "run.json"]


def test_a_fault_of_the_launchers_own_is_recorded(tmp_path: Path) -> None:
    def run(**how: object) -> int:
        raise ZeroDivisionError("its own")

    path, said = tmp_path / "run.json", []
    with pytest.raises(ZeroDivisionError):
        write.reported(str(path), JOB, [], run, said.append, verbose=False)
    found = read(path)
    assert found["exit_status"] == 125
    assert "ZeroDivisionError" in found["words"]
    assert said == [f"report: {path}"]

"""--events: what a program reads of a job while it runs."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jobs import LAUNCHER, Ended, Jobs

from mcjax_launch.journal.facts import Finding, JobBegan, StacksShown
from mcjax_launch.journal.opening import EventsTarget
from mcjax_launch.journal.sink import Target
from mcjax_launch.journal.stream import KINDS, EventStream
from mcjax_launch.wire.timers import SCALE

Event = dict[str, Any]
Run = Callable[..., tuple[Ended, list[Event]]]
# Prints bytes that are no UTF-8, half a character at the end of the first piece, and no last newline.
BYTES = r"printf 'a\377b\303'; sleep 0.1; printf '\251\nend'"


def events_of(path: Path) -> list[Event]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def run(jobs: Jobs, tmp_path: Path) -> Run:
    """Runs a job; how it ended, and its events."""

    def run(*args: object, **how: Any) -> tuple[Ended, list[Event]]:
        path = tmp_path / "events"
        ended = jobs.run("--events", path, *args, **how)
        return ended, events_of(path)

    return run


def of_kind(events: list[Event], kind: str) -> list[Event]:
    return [event for event in events if event["event"] == kind]


def text_of(events: list[Event], rank: int, stream: str = "stdout") -> str:
    output = of_kind(events, "output")
    return "".join(
        event["text"] for event in output if (event["rank"], event["stream"]) == (rank, stream)
    )


def test_events_describe_a_failed_job_from_beginning_to_end(run: Run) -> None:
    program = "echo out; echo err >&2; [ $JAX_PROCESS_ID = 0 ] && exec sleep 60; exit 3"
    ended, events = run("-n", 2, "sh", "-c", program)
    assert (events[0]["event"], events[-1]["event"]) == ("job", "summary")
    assert events[0]["program"] == ["sh", "-c", program]
    assert {event["rank"] for event in of_kind(events, "started")} == {0, 1}
    assert (text_of(events, 1), text_of(events, 0, "stderr")) == ("out\n", "err\n")
    exits = {event["rank"]: event["exit_status"] for event in of_kind(events, "ended")}
    assert exits == {0: 143, 1: 3}
    summary = events[-1]
    assert (summary["exit_status"], summary["root_cause"]["rank"]) == (ended.status, 1) == (3, 1)
    assert [rank["stdout"] for rank in summary["ranks"]] == ["out\n", "out\n"]
    assert "rank 1 failed: exit status 3" in [
        event["text"].split("\n")[0] for event in of_kind(events, "note")
    ]


def test_each_event_has_the_fields_that_are_documented(run: Run) -> None:
    _, events = run("-n", 2, "--max-restarts", 1, "sh", "-c", "exit 3", env={SCALE: "0.1"})
    kinds = {event["event"] for event in events}
    assert kinds >= {"job", "started", "ended", "note", "restart", "summary"}
    for event in events:
        assert set(event) == {"event", "time", *KINDS[event["event"]].fields}
    (restart,) = of_kind(events, "restart")
    assert restart["count"] == 1
    assert events[0]["job_id"] != restart["job_id"] == events[-1]["job_id"]


def test_bytes_that_are_no_utf8_survive(run: Run) -> None:
    _, events = run("-n", 1, "sh", "-c", BYTES)
    written = text_of(events, 0).encode("utf-8", "surrogateescape")
    assert written == b"a\xffb\xc3\xa9\nend"


def test_descriptor_gets_events_and_is_hidden_from_ranks(jobs: Jobs, tmp_path: Path) -> None:
    program = "import os, sys; sys.exit(os.path.exists('/proc/self/fd/7'))"
    command = [*LAUNCHER, "-n", "2", "--events", "fd:7", sys.executable, "-c", program]
    path = tmp_path / "events"
    script = f"exec {' '.join(map(repr, command))} 7>{path}"
    ended = subprocess.run(["sh", "-c", script], env=jobs.environment(), check=False, timeout=60)
    assert ended.returncode == 0
    assert events_of(path)[-1]["exit_status"] == 0


@pytest.mark.parametrize("how", ["is slow", "leaves"])
def test_reader_of_a_fifo_may_leave(jobs: Jobs, tmp_path: Path, how: str) -> None:
    fifo, marks = tmp_path / "fifo", tmp_path / "marks"
    os.mkfifo(fifo)
    program = f"import os; os.write(1, b'x' * (8 << 20)); open({str(marks)!r}, 'a').close()"
    command = ("-n", 1, "--events", fifo, sys.executable, "-c", program)
    job = jobs.start(*command, stdout=subprocess.DEVNULL)
    with fifo.open("rb") as reader:
        assert reader.readline()
        if how == "is slow":
            while b'"output"' not in reader.readline():
                pass
            assert not marks.exists()  # the rank waits: neither it nor the launcher has room
            assert b'"summary"' in reader.read()
    assert job.finish().status == 0
    assert marks.exists()


def test_a_fifo_without_a_reader_is_waited_for(jobs: Jobs, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    job = jobs.start("-n", 1, "--events", fifo, "true")
    assert job.process.stderr is not None
    assert b"waiting for a reader" in job.process.stderr.readline()
    job.signal(signal.SIGINT)
    assert job.finish().status == 130


def test_full_disk_is_reported_and_does_not_end_the_job(jobs: Jobs) -> None:
    ended = jobs.run("-n", 2, "--events", "/dev/full", "echo", "hi")
    assert (ended.status, ended.stdout.count("hi")) == (0, 2)
    assert ended.report == "--events /dev/full: No space left on device: no more events are written"


def test_events_of_a_job_that_cannot_start_are_a_job_and_a_summary(
    run: Run, tmp_path: Path
) -> None:
    program = tmp_path / "train.py"
    program.write_text("import sys, jax\njax.distributed.initialize(process_id=int(sys.argv[1]))\n")
    for words in (("no-such-program",), ("--log-dir", "/proc/no", program)):
        ended, (job, *notes, summary) = run("-n", 2, *words)
        assert (job["event"], job["program"][0]) == ("job", str(words[-1]))
        assert {note["event"] for note in notes} <= {"note"}
        assert (summary["event"], summary["exit_status"]) == ("summary", ended.status)
        assert summary["message"] in ended.report
        (tmp_path / "events").unlink()


def test_events_of_an_earlier_run_stay_until_another_begins(run: Run, tmp_path: Path) -> None:
    _, earlier = run("-n", 1, "true")
    for words in (("no-such-program",), ("-x", "NOT_SET_HERE", "true"), ("--log-dir", "a.py", "x")):
        ended, events = run("-n", 1, *words)
        assert (ended.status > 0, events) == (True, earlier)
    ended, events = run("-n", 1, "echo", "new")
    assert (ended.status, text_of(events, 0)) == (0, "new\n")


def test_events_hold_what_the_launcher_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of findings counts from the boot, that of events from 1970."""
    written: list[bytes] = []
    monkeypatch.setattr(Target, "write", lambda _, lines: written.extend(lines))
    reader, writer = os.pipe()
    stream = EventStream(EventsTarget(f"fd:{writer}", print))
    stream.on_job_began(JobBegan("job", ["program"], 1, ["host"]), 0.0)
    stream.on_finding(Finding("waits", since=time.monotonic() - 40), 0.0)
    stream.on_stacks_shown(StacksShown(["rank 0:"], ["rank 0 waits"]), 0.0)
    for fd in (reader, writer):
        os.close(fd)
    finding, stacks = map(json.loads, written[-2:])
    assert abs(finding["time"] - 40 - finding["since"]) < 5
    assert stacks["lines"] == ["rank 0:", "rank 0 waits"]

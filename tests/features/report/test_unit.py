"""The record of a run: what it holds, after ends of all kinds, and how it stays small."""

import hashlib
import json
import re
import signal
from base64 import b64encode
from typing import Any

import pytest
from records import KILL, TERM, attempt_of, end_of, failure, rank_run, record_of, run_of, say

from mcjax_launch.features.report import report_file, run_record
from mcjax_launch.journal.ending import Completed
from mcjax_launch.journal.facts import Planned
from mcjax_launch.journal.rank_run import RankRun, Sample
from mcjax_launch.journal.state import RunState
from mcjax_launch.journal.stop_reasons import StopReason
from mcjax_launch.journal.summary import Summary, summarize
from mcjax_launch.options.option import without_values
from mcjax_launch.wire.frames import Data
from mcjax_launch.wire.hook_messages import Compiling, Failed, ImportedJax, Joined, Joining
from mcjax_launch.wire.messages import GpuUse, RankOnGpu, RankUsage, Started, Usage

VICTIM = "Terminating process because the JAX distributed service detected fatal errors"


def ended(status: int | None, sent: tuple[int, ...] = (), **more: Any) -> RankRun:
    return rank_run(0, status, sent, **more)


# Name: (end, outcome, words, exit status, signal)
ENDS: dict[str, tuple[RankRun, str, str, int | None, str | None]] = {
    "status": (ended(3), "failed", "exit status 3", 3, None),
    "exception": (ended(1, failure=failure(joined=False)), "failed", "ValueError: x", 1, None),
    "exception that JAX holds up": (
        ended(-KILL, (KILL,), failure=failure()), "failed", "ValueError: x", 1, "SIGKILL",
    ),
    "exception, still there": (ended(None, failure=failure()), "failed", "ValueError: x", 1, None),
    "exit that JAX holds up": (
        ended(-KILL, (KILL,), failure=Failed(9, joined=True, exited=True)),
        "failed", "exit status 9", 9, "SIGKILL",
    ),
    "told to end": (ended(-TERM, (TERM,)), "stopped", "ended by SIGTERM", 143, "SIGTERM"),
    "told to end, and did so well": (ended(0, (TERM,)), "ended", "exited with 0", 0, None),
    "exits, as another failed": (
        ended(3, stderr="x\nGloo AllGather failed: Connection reset by peer\n"), "consequence",
        "failed as a consequence", 3, None,
    ),
    "after the grace": (
        ended(-KILL, (TERM, KILL)), "stopped", "killed (still running after SIGTERM)", 137, "SIGKILL",
    ),
    "victim": (
        ended(-signal.SIGABRT, stderr=VICTIM), "consequence", "aborted by JAX as a consequence",
        134, "SIGABRT",
    ),
    "lost": (ended(None, lost=True), "lost", "lost with host h", None, None),
    "never started": (ended(None), "unknown", "never started", None, None),
}  # fmt: skip


@pytest.mark.parametrize("name", ENDS)
def test_record_holds_the_end_of_a_rank(name: str) -> None:
    run, outcome, words, status, by = ENDS[name]
    attempt = attempt_of(RunState(ranks={0: run}), Summary(Completed(1)))
    (rank,) = run_record.make_attempt_record(attempt, 0)["ranks"]
    assert (rank["outcome"], rank["words"]) == (outcome, words)
    assert (rank["exit_status"], rank["signal"]) == (status, by)
    assert (rank["exception"] is not None) == name.startswith("exception")


def test_record_holds_times_and_usage_of_a_rank() -> None:
    state = RunState(began_at=105.0)
    state.on_planned(Planned("ab12", "127.0.0.1:1", {0: "h"}, None), 0.0)
    state.ranks[0].share.log_folder = "/logs"
    state.on_usage(Usage((RankUsage(0, 9.5, 9999),)), 105.05)  # what it is forked from
    state.on_started(Started(0, 77), 105.1)
    say(state, 0, ImportedJax("0.10.2", "0.10.1", "3.11.2"), 105.15)
    say(state, 0, Joining("127.0.0.1:1", 1, 0), 105.2)
    say(state, 0, Joined(0), 105.3)
    state.on_data(Data(0, 1, b""), 105.4)
    state.on_usage(Usage((RankUsage(0, 1.5, 2048),)), 106.0)
    say(state, 0, failure(), 106.2345)
    say(state, 0, Compiling("jit_f", "", "cpu"), 105.5)
    state.on_exited(end_of(0, -KILL, (TERM, KILL), 1.75, 1024), 108.0)
    lines = ("rank 0 failed: ValueError: x", "more")
    summary = Summary(summarize(state).ending, lines, final=False)
    found = run_record.make_attempt_record(
        attempt_of(state, summary, restart=2, seconds=3.1), 100.0
    )
    (rank,) = found.pop("ranks")
    assert found == {
        "restart": 2,
        "job_id": "ab12",
        "began_s": 5.0,
        "seconds": 3.1,
        "coordinator": "127.0.0.1:1",
        "hosts": ["h"],
        "program_sha256": {},
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
        **{key: [] for key in ("divergence", "divergence_sides", "waits", "leftovers")},
        **{key: [] for key in ("stacks", "kernel_log")},
        "idle_since_s": None,
        "preview": None,
        "values": None,
        "complete": True,
    }
    assert rank == {
        "rank": 0,
        "host": "h",
        "pid": 77,
        "jax": "0.10.2",
        "jaxlib": "0.10.1",
        "python": "3.11.2",
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
        "gpus": None,
        "gpu_use": [],
        "gpu_peak_mib": None,
        "gpu_samples": [],
        "cores": None,
        "compiled": None,
        "compiled_last": {"name": "jit(f)", "where": None},
        "programs": None,
        "last_programs": [],
        "cpu_s": 1.75,
        "peak_kib": 2048,
        "samples": [[1.0, 1.5, 2048]],
        "last_lines": {"stdout": [], "stderr": []},
        "log_files": {"stdout": "/logs/0.out", "stderr": "/logs/0.err"},
    }


def test_gpus_of_a_rank_are_recorded_as_it_knows_them() -> None:
    """The driver counts all of a host's."""
    run = rank_run(0, 0)
    run.usage.gpus.record([(GpuUse(3, "H100", 1024, 81559), RankOnGpu(0, 520))], 1.0)
    assert run_record._make_gpus(run, 0.0, 9)["gpus"] == "3"
    run.share.gpus = "0"
    assert run_record._make_gpus(run, 0.0, 9)["gpus"] == "0"


def test_the_cause_is_what_came_first() -> None:
    state = run_of(1)
    state.on_started(Started(0, 1), 0.1)
    state.on_stop_reason(StopReason("stopped by SIGINT", 130), 2.0)
    state.on_exited(end_of(0, 5, (2,), 0.0, 0), 2.5)
    cause = run_record.make_attempt_record(attempt_of(state), 0)["cause"]
    assert (cause["kind"], cause["rank"], cause["at_s"]) == ("stop", None, 2.0)


LINES: dict[str, tuple[str, list[str]]] = {
    "nothing": ("", []),
    "no newline at the end": ("a\nb", ["a", "b"]),
    "an empty line": ("a\n\nb\n", ["a", "", "b"]),
    "a progress bar": ("x\n1%\r2%\r3%", ["x", "3%"]),
    "lines of Windows": ("a\r\nb\r\n", ["a", "b"]),
    "other separators": ("a\x0b\u2028b\n", ["a\x0b\u2028b"]),
    "many": ("".join(f"{n}\n" for n in range(600)), [str(n) for n in range(100, 600)]),
    "a long one": ("x" * 5000, ["... " + "x" * 1000]),
}


@pytest.mark.parametrize("name", LINES)
def test_last_lines_are_kept(name: str) -> None:
    text, expected = LINES[name]
    assert run_record.select_last_lines(text, 10_000) == expected


def test_samples_are_thinned_but_not_their_peaks() -> None:
    samples = [Sample(at, at / 2, 9999 if at == 333 else 10) for at in range(512)]
    kept = run_record.thin_samples(samples, 40)
    assert len(kept) == 40
    assert max(sample.rss_kib for sample in kept) == 9999
    assert kept == sorted(kept, key=lambda sample: sample.at)
    assert kept[-1] == samples[-1]
    assert run_record.thin_samples(samples[:40], 40) == samples[:40]


def test_values_of_variables_are_left_out() -> None:
    words = ["--env", "TOKEN=secret", "--env", "HOME", "-q", "--", "a", "--env", "B=own"]
    left = ["--env", "TOKEN=...", "--env", "HOME", "-q", "--", "a", "--env", "B=own"]
    assert without_values(words) == left


def test_a_record_of_a_big_job_stays_small() -> None:
    many = record_of(256, samples=512, printed="y" * 16_384)
    assert 100_000 < len(json.dumps(many)) < 8_000_000


def test_a_record_of_many_attempts_stays_small() -> None:
    attempts = []
    for _ in range(30):
        attempts += record_of(2)["attempts"]
        run_record.lighten(attempts)
    kept = [attempt["complete"] for attempt in attempts]
    assert kept == [True] + [False] * 22 + [True] * 7
    assert attempts[5]["ranks"][1]["samples"] == []
    assert attempts[5]["ranks"][1]["words"] == attempts[-1]["ranks"][1]["words"]


def test_record_cannot_end_its_script_element() -> None:
    text = json.dumps({"a": "</script><!--\u2028é"})
    page = report_file.make_page(text)
    held = re.search(r'<script type="application/json" id="record">(.*?)</script>', page)
    assert held is not None
    assert json.loads(held[1]) == json.loads(text)
    assert "<" not in held[1]
    assert held[1].isascii()


def test_name_of_the_report_decides_on_its_format() -> None:
    for name, start in (("a.json", "{"), ("a.HTML", "<!doctype html>")):
        assert report_file._format_text(name, record_of(2)).startswith(start)


def test_the_page_runs_its_own_script_alone() -> None:
    text = report_file.make_page(json.dumps(record_of(2)))
    policy = re.search(r'Security-Policy"\s+content="([^"]*)"', text)
    assert policy is not None
    for element, source in (("style", "style-src"), ("script", "script-src")):
        inside = re.search(rf"<{element}>(.*?)</{element}>", text, re.DOTALL)
        assert inside is not None
        digest = b64encode(hashlib.sha256(inside[1].encode()).digest()).decode()
        assert f"{source} 'sha256-{digest}'" in policy[1]
    assert "unsafe" not in policy[1]


def test_page_loads_no_other_resource() -> None:
    text = report_file.make_page(json.dumps(record_of(2)))
    assert "default-src 'none'" in text  # so that it could not if it wanted
    assert not re.findall(r"https?://", text)
    assert re.findall(r"""(?:src|href)=["']?([^"'>\s]*)""", text) == ["data:,"]
    assert not re.findall(r"@import|url\(|fetch\(|XMLHttp|WebSocket|innerHTML|eval\(", text)

"""Records of runs that did not happen, of any size, and those of runs that did."""

import json
import signal
from pathlib import Path
from typing import Any

from mcjax_launch.diagnosis import root_cause
from mcjax_launch.job.job import Job
from mcjax_launch.report import record
from mcjax_launch.run.state import Attempt, History

TERM, KILL, SEGV = signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV
JOB = Job(program=("train.py",), num_processes=256, python="python", chdir="/")


def failure(joined: bool = True) -> dict[str, object]:
    """What a hook says of an exception."""
    return {
        "status": 1,
        "joined": joined,
        "exception": "ValueError",
        "summary": "ValueError: x",
        "traceback": "Traceback ...\nValueError: x\n",
        "where": "train.py:3 in step",
        "line": "boom()",
    }


def end_of(status: int, sent: list[int], cpu_s: float, peak_kib: int) -> dict[str, object]:
    """What an agent says of a rank's end."""
    return {"status": status, "sent": sent, "cpu_s": cpu_s, "peak_kib": peak_kib, "killer": ""}


def record_of(count: int, *, samples: int = 4, printed: str = "") -> dict[str, Any]:
    """The record of `count` ranks, 8 a host, of which the last one but one fails after 100 s."""
    history = History(hosts=-(-count // 8))
    history.planned("0123abcd", "h0:1", {n: f"h{n // 8}" for n in range(count)}, None)
    culprit = count - 2
    for n, run in history.ranks.items():
        history.started(n, 1000 + n, 0.5)
        history.hooked(n, {"joining": {}}, 2 + n / count)
        history.hooked(n, {"joined": {"process_id": n}}, 3.5)
        history.printed(n, 4)
        run.stdout, run.stderr = f"{printed}\nrank {n} out\n", f"{printed}\nrank {n} err\n"
    for at in range(samples):
        usage = {str(n): [at + n / count, (1 + n) << 10, 0.0] for n in range(count)}
        history.used(usage, 1 + 98 * at / samples)
    history.hooked(culprit, {"main": True, "failed": failure()}, 100)
    for n in range(count):
        status, sent = (-KILL, [TERM, KILL]) if n == culprit else (-TERM, [TERM])
        history.exited(n, end_of(status, sent, float(samples), (1 + n) << 10), 101 + n / count)
    found = root_cause.judge(history)
    attempt = Attempt(
        restart=0,
        hosts=tuple(f"h{n}" for n in range(history.hosts)),
        began_at=0,
        seconds=102,
        history=history,
        status=found.status,
        words=found.report,
    )
    return record.run(
        JOB,
        ["--", "train.py"],
        [record.attempt(attempt, 0)],
        began=1.8e9,
        seconds=102,
        status=found.status,
        end=found.report[0],
        host="here",
    )


def stalled(count: int, stacks: list[str]) -> dict[str, Any]:
    """The record of ranks that were ended by a timeout, and where they stood."""
    made = record_of(count)
    words = "no rank has printed anything for 60 s (--stall-timeout 60)"
    _ended(made, 124, {"kind": "stop", "at_s": 100.0, "words": words, "report": [words]})
    for rank in made["attempts"][0]["ranks"]:
        rank.update(outcome="stopped", words="ended by SIGTERM", signal="SIGTERM")
    made["attempts"][0]["stacks"] = stacks
    return made


def succeeded(count: int, divergence: list[str]) -> dict[str, Any]:
    """The record of ranks that all ended with 0, and how their programs differed."""
    made = record_of(count)
    words = f"all {count} ranks ended with 0"
    _ended(made, 0, {"kind": "none", "at_s": None, "words": words, "report": []})
    for rank in made["attempts"][0]["ranks"]:
        rank.update(outcome="ended", words="ended with 0", exit_status=0, signal=None)
    made["attempts"][0]["divergence"] = divergence
    return made


def _ended(made: dict[str, Any], status: int, cause: dict[str, Any]) -> None:
    """Let a record have another end."""
    (attempt,) = made["attempts"]
    made["exit_status"] = attempt["exit_status"] = status
    made["words"] = cause["words"]
    attempt["cause"] = {"rank": None, "host": None, "alike": [], **cause}
    for rank in attempt["ranks"]:
        rank.update(failed_s=None, exception=None)


def read(path: Path) -> dict[str, Any]:
    """A record, from the JSON or out of the page."""
    assert [file.name for file in path.parent.iterdir() if file.name.startswith(".")] == []
    text = path.read_text()
    if path.suffix == ".html":
        text = text.partition('id="record">')[2].partition("</script>")[0]
    found = json.loads(text)
    assert (found["format"], found["version"]) == ("mcjax-launch run", 1)
    return found  # type: ignore[no-any-return]

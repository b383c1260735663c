"""Make records of invented runs of any size, and read records of real runs."""

import json
import signal
from pathlib import Path
from typing import Any

from mcjax_launch.features.report import run_record
from mcjax_launch.job.job import Job
from mcjax_launch.journal.attempt import Attempt
from mcjax_launch.journal.facts import Planned
from mcjax_launch.journal.journal import Journal
from mcjax_launch.journal.rank_run import RankProcess, RankRun
from mcjax_launch.journal.state import RunState
from mcjax_launch.journal.summary import Summary, summarize
from mcjax_launch.journal.tails import Tails
from mcjax_launch.wire.frames import STDERR, STDOUT, Data
from mcjax_launch.wire.hook_messages import Failed, HookMessage, Joined, Joining
from mcjax_launch.wire.messages import Exited, FromHook, RankUsage, Started, Usage

TERM, KILL, SEGV = signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV
JOB = Job(program=("train.py",), num_processes=256, python="python", chdir="/")


def run_of(count: int = 2, *hosts: str, joins: bool = False, **known: Any) -> RunState:
    """The state of a run with so many ranks, in turn on each host; on request all have joined."""
    state = RunState(**{"num_processes": count, **known})
    names = hosts or ("h",)
    state.on_planned(
        Planned("ab", "h:1", {rank: names[rank % len(names)] for rank in range(count)}, None), 0.0
    )
    for rank in range(count) if joins else ():
        say(state, rank, Joining("h:1", state.num_processes, rank, "train.py:3"), 1.0)
        say(state, rank, Joined(rank), 2.0)
    return state


def attempt_of(state: RunState, summary: Summary | None = None, **more: Any) -> Attempt:
    """A job's only attempt, on one host."""
    values = {"restart": 0, "hosts": ("h",), "seconds": 3.0, **more}
    return Attempt(state=state, summary=summary or summarize(state), **values)


def failure(summary: str = "ValueError: x", joined: bool = True, **more: Any) -> Failed:
    """What a hook says of an exception."""
    values = {
        "status": 1,
        "exception": summary.split(":")[0],
        "traceback": f"Traceback ...\n{summary}\n",
        "where": "train.py:3 in step",
        "line": "boom()",
    }
    return Failed(summary=summary, joined=joined, **(values | more))  # type: ignore[arg-type]


def end_of(
    rank: int, status: int, sent: tuple[int, ...] = (), cpu_s: float = 1.0, peak_kib: int = 1
) -> Exited:
    """What an agent says of a rank's end."""
    return Exited(rank, status, sent, "", cpu_s, peak_kib)


def say(state: RunState, rank: int, message: HookMessage, at: float, **known: Any) -> None:
    """Let a rank's hook say something."""
    state.on_from_hook(FromHook(rank, message, **known), at)


def rank_run(
    rank: int,
    status: int | None,
    sent: tuple[int, ...] = (),
    *,
    lost: bool = False,
    **more: Any,
) -> RankRun:
    """A rank that has ended so; None: it has not."""
    return RankRun(rank, "h", process=RankProcess(status=status, signals=sent, lost=lost), **more)


def record_of(count: int, *, samples: int = 4, printed: str = "") -> dict[str, Any]:
    """The record of `count` ranks, 8 a host, of which the last one but one fails after 100 s."""
    state = RunState(hosts=-(-count // 8), tails=Tails(for_record=True))
    state.on_planned(
        Planned("0123abcd", "h0:1", {n: f"h{n // 8}" for n in range(count)}, None), 0.0
    )
    culprit = count - 2
    for n in state.ranks:
        state.on_started(Started(n, 1000 + n), 0.5)
        say(state, n, Joining("h0:1", count, n), 2 + n / count)
        say(state, n, Joined(n), 3.5)
        for stream, name in ((STDOUT, "out"), (STDERR, "err")):
            state.on_data(Data(n, stream, f"{printed}\nrank {n} {name}\n".encode()), 4)
    for at in range(samples):
        usage = (RankUsage(n, at + n / count, (1 + n) << 10) for n in range(count))
        state.on_usage(Usage(tuple(usage)), 1 + 98 * at / samples)
    say(state, culprit, failure(), 100)
    for n in range(count):
        status, sent = (-KILL, (TERM, KILL)) if n == culprit else (-TERM, (TERM,))
        end = end_of(n, status, sent, float(samples), (1 + n) << 10)
        state.on_exited(end, 101 + n / count)
        state.keep_output(n)
    summary = summarize(state)
    hosts = tuple(f"h{n}" for n in range(state.hosts))
    attempt = attempt_of(state, summary, hosts=hosts, seconds=102)
    return run_record.make_run_record(
        JOB,
        ["--", "train.py"],
        [run_record.make_attempt_record(attempt, 0)],
        began=1.8e9,
        seconds=102,
        status=summary.status,
        end=summary.lines[0],
        host="here",
    ) | {"report_path": "/runs/1/run.html", "checkout": None}


def stalled(count: int, stacks: list[str]) -> dict[str, Any]:
    """The record of ranks that were ended by a timeout, and where they stood."""
    made = record_of(count)
    words = "no rank has printed anything for 60 s (--stall-timeout 60)"
    _ended(made, 124, {"kind": "stop", "at_s": 100.0, "words": words, "report": [words]})
    for rank in made["attempts"][0]["ranks"]:
        rank.update(outcome="stopped", words="ended by SIGTERM", signal="SIGTERM")
    made["attempts"][0].update(stacks=stacks, idle_since_s=40.0)
    return made


def succeeded(count: int, divergence: list[str]) -> dict[str, Any]:
    """The record of ranks that all exited with 0, and how their programs differed."""
    made = record_of(count)
    words = f"all {count} ranks exited with 0"
    _ended(made, 0, {"kind": "none", "at_s": None, "words": words, "report": []})
    for rank in made["attempts"][0]["ranks"]:
        rank.update(outcome="ended", words="exited with 0", exit_status=0, signal=None)
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
    assert (found["format"], found["version"]) == ("mcjax-launch run", 2)
    return found  # type: ignore[no-any-return]


class Clock:
    """A journal's clock that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def journal_of(state: RunState, clock: Clock | None = None) -> Journal:
    """A journal that the state reads."""
    journal = Journal(clock or Clock())
    journal.begin_attempt(state)
    return journal

"""A run's record: what happened, as JSON has it, by a documented and numbered format; pure.

Names carry their units. Times (`..._s`) are seconds since the attempt began, by the launcher's
clock, unless they say otherwise; null where something has not happened or is not known.
"""

import signal
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from mcjax_launch import __version__
from mcjax_launch.diagnosis.root_cause import (
    ended_by,
    fate,
    first_cause,
    headline,
    reason,
    shortened,
)
from mcjax_launch.diagnosis.victim import is_victim
from mcjax_launch.job.job import Job
from mcjax_launch.run.spmd import titled
from mcjax_launch.run.state import Attempt, History, RankRun, Sample, Stop

FORMAT = "mcjax-launch run"
#: Goes up when a field changes its meaning or goes away; a new field does not change it.
VERSION = 1

# Of all ranks together, and what each gets at least.
_MOST_SAMPLES, _LEAST_SAMPLES = 32_768, 32
_MOST_TAIL, _LEAST_TAIL = 8 << 20, 2000
_LAST_LINES = 20
_LONGEST = 1000
# The first attempt and the last ones are kept whole.
_WHOLE_ATTEMPTS = 8


def run(
    job: Job,
    words: Sequence[str],
    attempts: Sequence[Mapping[str, Any]],
    *,
    began: float,
    seconds: float,
    status: int,
    end: str,
    host: str,
) -> dict[str, Any]:
    """The record of a launcher's whole work.

    Args:
        job: what was asked for.
        words: the command line.
        attempts: see `attempt`.
        began: when, in seconds since 1970.
        seconds: how long it took.
        status: the exit status.
        end: what it ended with, in one line.
        host: the launcher's.

    """
    return {
        "format": FORMAT,
        "version": VERSION,
        "launcher_version": __version__,
        "launcher_host": host,
        "command": ["mcjax-launch", *without_values(words)],
        "program": list(job.program),
        "num_processes": job.num_processes,
        "began": datetime.fromtimestamp(began, UTC).isoformat(timespec="milliseconds"),
        "seconds": round(seconds, 3),
        "exit_status": status,
        "words": end,
        "restarts": max(0, len(attempts) - 1),
        "attempts": list(attempts),
    }


def without_values(words: Sequence[str]) -> list[str]:
    """A command line without the values of the ranks' variables, which may be secrets."""
    options = list(words[: words.index("--")] if "--" in words else words)
    for at, word in enumerate(options[:-1]):
        if word == "--env":
            name, equals, _ = options[at + 1].partition("=")
            options[at + 1] = f"{name}=..." if equals else name
    return [*options, *words[len(options) :]]


def attempt(ended: Attempt, began_at: float) -> dict[str, Any]:
    """The record of one attempt.

    Args:
        began_at: when the launcher began, in time.monotonic's seconds.

    """
    history = ended.history
    return {
        "restart": ended.restart,
        "job_id": history.job_id or None,
        "began_s": round(ended.began_at - began_at, 3),
        "seconds": round(ended.seconds, 3),
        "coordinator": history.coordinator or None,
        "hosts": list(ended.hosts),
        "log_dir": history.log_dir,
        "exit_status": ended.status,
        "cause": _cause(ended),
        "divergence": history.programs.words() if history.diverged else [],
        "stacks": list(history.stacks),
        "complete": True,
        "ranks": [_rank(run, history) for run in history.ranks.values()],
    }


def last_words(attempts: Sequence[Mapping[str, Any]], status: int) -> str:
    """What a launcher ended with, in one line, that ran these attempts."""
    if attempts and attempts[-1]["exit_status"] == status:
        return str(attempts[-1]["cause"]["words"])
    return f"stopped by {_name(status - 128)} before another attempt"


def lighten(attempts: Sequence[dict[str, Any]]) -> None:
    """Leave out what is bulky of attempts in the middle, so that any number of them can be kept."""
    for middle in attempts[1 : 1 - _WHOLE_ATTEMPTS]:
        middle["complete"] = False
        for rank in middle["ranks"]:
            rank["samples"], rank["last_lines"] = [], {"stdout": [], "stderr": []}


def _cause(ended: Attempt) -> dict[str, Any]:
    history = ended.history
    cause, first = ended_by(history), first_cause(history.ranks.values())
    kind, at, rank = "none", None, None
    alike: tuple[RankRun, ...] = ()
    if isinstance(cause, Stop):
        kind, at = "stop", history.stop_at
    elif first is not None and cause is not None:
        kind, at, rank, alike = "rank", first.failed_at, cause.run, cause.like
    elif ended.words:  # it could not be started
        kind = "stop"
    count = len(history.ranks)
    well = "the rank ended with 0" if count == 1 else f"all {count} ranks ended with 0"
    if history.diverged:
        well += ", but they ran different programs"
    fine = well if not ended.status else "ended"
    return {
        "kind": kind,
        "rank": None if rank is None else rank.process_id,
        "host": None if rank is None else rank.host,
        "alike": [run.process_id for run in alike],
        "at_s": _rounded(at),
        "words": ended.words[0] if ended.words else fine,
        "report": list(ended.words),
    }


def _rank(run: RankRun, history: History) -> dict[str, Any]:
    count = len(history.ranks)
    samples = thinned(run.samples, max(_LEAST_SAMPLES, _MOST_SAMPLES // count))
    tail = max(_LEAST_TAIL, _MOST_TAIL // (2 * count))
    ended = run.status is not None
    by_signal = run.status is not None and run.status < 0
    cpu_s = max([run.cpu_s or 0.0, *(sample.cpu_s for sample in run.samples)])
    peak_kib = max([run.peak_kib or 0, *(sample.rss_kib for sample in run.samples)])
    return {
        "rank": run.process_id,
        "host": run.host,
        "pid": run.pid,
        "started_s": _rounded(run.started_at),
        "joining_s": _rounded(run.joining_at),
        "joined_s": _rounded(run.joined_at),
        "first_output_s": _rounded(run.first_output_at),
        "leaving_s": _rounded(run.leaving_at),
        "failed_s": _rounded(run.failed_at),
        "ended_s": _rounded(run.ended_at),
        "outcome": outcome(run),
        "words": _words(run),
        "exit_status": run.exit_status if ended or run.hidden_failure else None,
        "signal": _name(-run.status) if by_signal and run.status is not None else None,
        "signals_sent": [_name(signum) for signum in run.sent],
        "exception": _exception(run),
        "killer": run.killer or None,
        "platform": run.platform or None,
        "compiled_last": _compiled_last(run),
        "cpu_s": round(cpu_s, 2) if ended or run.samples else None,
        "peak_kib": peak_kib if ended or run.samples else None,
        "samples": [[round(s.at, 3), round(s.cpu_s, 2), s.rss_kib] for s in samples],
        "last_lines": {
            "stdout": last_lines(run.stdout, tail),
            "stderr": last_lines(run.stderr, tail),
        },
    }


def outcome(run: RankRun) -> str:
    """What became of a rank, in one word."""
    if run.failed:
        return "consequence" if is_victim(run) else "failed"
    if run.status is None:
        return "lost" if run.lost else "unknown"
    return "ended" if run.status == 0 else "stopped"


def _words(run: RankRun) -> str:
    return reason(run) if run.failed and not is_victim(run) else fate(run)


def _exception(run: RankRun) -> dict[str, Any] | None:
    failure = run.failure
    if failure is None or failure.exited:
        return None
    lines = shortened(failure.traceback.rstrip().splitlines())
    return {
        "name": failure.exception,
        "headline": headline(failure)[:_LONGEST],
        "where": failure.where,
        "line": failure.line,
        "traceback": [line[:_LONGEST] for line in lines],
    }


def _compiled_last(run: RankRun) -> dict[str, Any] | None:
    if run.compiled is None:
        return None
    return {"name": titled(run.compiled.name), "where": run.compiled.where or None}


def thinned(samples: Sequence[Sample], most: int) -> list[Sample]:
    """At most so many of the samples: of neighbours the one with the most memory, and the last."""
    if len(samples) <= most:
        return list(samples)
    rest, parts = samples[:-1], most - 1
    edges = [len(rest) * part // parts for part in range(parts + 1)]
    kept = [
        max(rest[edges[part] : edges[part + 1]], key=lambda sample: sample.rss_kib)
        for part in range(parts)
    ]
    return [*kept, samples[-1]]


def last_lines(text: str, most: int) -> list[str]:
    """The last lines of a stream as a terminal has them: without what a progress bar overwrote.

    Args:
        most: so many characters, about.

    """
    lines = text[-most:].split("\n")[-_LAST_LINES - 1 :]
    if lines[-1] == "":
        lines.pop()
    shown = [line.rstrip("\r").rpartition("\r")[2] for line in lines[-_LAST_LINES:]]
    return [line if len(line) <= _LONGEST else f"... {line[-_LONGEST:]}" for line in shown]


def _name(signum: int) -> str:
    try:
        return signal.Signals(signum).name
    except ValueError:
        return f"signal {signum}"


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)

"""The record of a run as JSON, in a documented and numbered format; pure.

Names carry their units. Times (`..._s`) are seconds since the attempt began, by the launcher's
clock, unless they say otherwise; null if something has not happened or is not known.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from mcjax_launch.job.job import Job
from mcjax_launch.journal.attempt import Attempt, JobOutcome
from mcjax_launch.journal.ending import JobStopped, NotStarted, RankFailed
from mcjax_launch.journal.facts import Finding
from mcjax_launch.journal.programs import format_title
from mcjax_launch.journal.rank_run import RankRun, Sample, Verdict
from mcjax_launch.journal.state import RunState
from mcjax_launch.journal.stop_reasons import StopReason
from mcjax_launch.journal.summary import describe_run_end
from mcjax_launch.journal.verdict import determine_verdict
from mcjax_launch.journal.words import describe_rank_end, describe_rank_failure, extract_headline
from mcjax_launch.options import features as declared
from mcjax_launch.options.option import without_values
from mcjax_launch.ranks import group_by_key
from mcjax_launch.wire.exit_status import get_signal_name
from mcjax_launch.wire.hook_messages import ImportedJax
from mcjax_launch.wire.value import Value
from mcjax_launch.wire.version import __version__
from mcjax_launch.wording import omit_middle

#: JSON: what `json.dumps` takes.
Json = dict[str, Any]

FORMAT = "mcjax-launch run"
#: Goes up when a field changes its meaning or goes away; a new field does not change it.
VERSION = 2

# Limits for all ranks together, and the least for each.
_MOST_SAMPLES, _LEAST_SAMPLES = 32_768, 32
_MOST_TAIL, _LEAST_TAIL = 8 << 20, 2000
_MOST_PROGRAMS = 16
_LAST_LINES = 500
_LONGEST = 1000
# The first attempt and the last ones are kept whole.
_WHOLE_ATTEMPTS = 8


def make_run_record(
    job: Job,
    arguments: Sequence[str],
    attempts: Sequence[Json],
    *,
    began: float,
    seconds: float,
    status: int,
    end: str,
    host: str,
) -> Json:
    """Return the record of all attempts of a launcher.

    Args:
        job: the job.
        arguments: words of the command line.
        attempts: records of the attempts, see `make_attempt_record`.
        began: start time of the launcher, in seconds since 1970.
        seconds: duration of the launcher's run.
        status: exit status of the launcher.
        end: description of the job's end, in one line.
        host: host name of the launcher's machine.

    """
    return {
        "format": FORMAT,
        "version": VERSION,
        "launcher_version": __version__,
        "launcher_host": host,
        "command": ["mcjax-launch", *without_values(arguments)],
        "program": list(job.program),
        "num_processes": job.num_processes,
        "began": datetime.fromtimestamp(began, UTC).isoformat(timespec="milliseconds"),
        "seconds": round(seconds, 3),
        "exit_status": status,
        "words": end,
        "restarts": max(0, len(attempts) - 1),
        "attempts": list(attempts),
    }


def make_attempt_record(ended: Attempt, began_at: float) -> Json:
    """Return the record of one attempt.

    Args:
        ended: the attempt.
        began_at: start time of the launcher, in time.monotonic's seconds.

    """
    state, cause, checksums = ended.state, _make_cause(ended), ended.program_checksums.items()
    return {
        "restart": ended.restart,
        "job_id": state.job_id or None,
        "began_s": round(state.began_at - began_at, 3),
        "seconds": round(ended.seconds, 3),
        "coordinator": state.coordinator or None,
        "hosts": list(ended.hosts),
        "program_sha256": group_by_key((sha, host) for host, sha in checksums),
        "log_dir": state.log_dir,
        "exit_status": ended.summary.status,
        "cause": cause,
        "divergence": _describe_divergence(state),
        "divergence_sides": _list_sides(state),
        "values": _make_values(state),
        "stacks": list(state.stacks),
        "kernel_log": list(state.kernel_log),
        "preview": state.preview,
        "idle_since_s": _compute_seconds_since(state.began_at, state.idle_since),
        "waits": _make_waits(ended, cause["at_s"]),
        "leftovers": [
            {"rank": process.rank, "pid": process.pid, "command": process.command}
            for process in state.leftovers
        ],
        "complete": True,
        "ranks": [_make_rank(run, state, cause["rank"]) for run in state.ranks.values()],
    }


def make_summary(attempt: Attempt, outcome: JobOutcome, seconds: float, restarts: int) -> Json:
    """Return the fields of the event `summary` besides its first two; see `journal.stream`.

    Args:
        attempt: the last attempt.
        outcome: how the job has ended.
        seconds: duration of the run, with all attempts.
        restarts: how often the job was restarted.

    """
    state = attempt.state
    told = make_attempt_record(attempt, state.began_at)
    ranks = [_add_texts(rank, state.ranks[rank["rank"]]) for rank in told.pop("ranks")]
    return {
        "lines": told["cause"]["report"],
        "root_cause": _make_root_cause(outcome, told["cause"], ranks) if outcome.status else None,
        "ranks": ranks,
        "hosts": told["hosts"],
        "seconds": round(seconds, 3),
        "restarts": restarts,
        "job_id": told["job_id"],
        "log_dir": told["log_dir"],
        "record": told,
    }


def _add_texts(told: Json, run: RankRun) -> Json:
    """Return the record of a rank with whole texts: the traceback, and the end of its output."""
    failure = run.failure
    has_raised = failure is not None and not failure.exited
    return {
        **told,
        "traceback": failure.traceback if failure is not None and has_raised else None,
        "stdout": run.stdout,
        "stderr": run.stderr,
    }


def _make_root_cause(outcome: JobOutcome, cause: Json, ranks: list[Json]) -> Json:
    culprit = next((rank for rank in ranks if rank["rank"] == cause["rank"]), None)
    exception = (culprit and culprit["exception"]) or {}
    return {
        "message": outcome.message,
        "rank": cause["rank"],
        "ranks": cause["alike"],
        "host": cause["host"],
        "exception": exception.get("headline"),
        "where": exception.get("where"),
        "traceback": culprit["traceback"] if culprit else None,
    }


def lighten(attempts: Sequence[Json]) -> None:
    """Drop samples and output from all attempts but the first and the last 7, to save memory."""
    for middle in attempts[1 : 1 - _WHOLE_ATTEMPTS]:
        middle["complete"] = False
        for rank in middle["ranks"]:
            rank["samples"], rank["gpu_samples"] = [], []
            rank["last_lines"] = {"stdout": [], "stderr": []}


def _make_cause(ended: Attempt) -> Json:
    kind = "none"
    at: float | None = None
    culprit: RankRun | None = None
    alike: tuple[RankRun, ...] = ()
    match ended.summary.ending:
        case RankFailed(first, found=Finding(ranks=())):
            kind, at = "stop", first.failed_at
        case RankFailed(first, culprit, alike):
            kind, at = "rank", first.failed_at
        case JobStopped(StopReason(rank=int(rank)), at):
            kind, culprit = "rank", ended.state.ranks[rank]
            alike = (culprit,)
        case JobStopped(at=at):
            kind = "stop"
        case NotStarted():
            kind = "stop"
    return {
        "kind": kind,
        "rank": None if culprit is None else culprit.process_id,
        "host": None if culprit is None else culprit.host,
        "alike": [run.process_id for run in alike],
        "at_s": _compute_seconds_since(ended.state.began_at, at),
        "words": describe_run_end(ended.summary, ended.state),
        "report": list(ended.summary.lines),
    }


def _describe_divergence(state: RunState) -> list[str]:
    """Return lines on different programs, and on different values of replicated arrays."""
    if (sequences := state.sequences) is None:
        return []
    words, found = declared.load("differences"), sequences.values.difference
    values = [] if found is None else [words.describe_values(sequences, found)]
    return [*words.describe_differences(sequences), *values]


def _list_sides(state: RunState) -> list[list[int]]:
    """Return the groups of ranks that did, or held, the same at the first difference."""
    if state.sequences is None:
        return []
    if not state.differs:
        found = state.sequences.values.difference
        return [] if found is None else [list(group) for group in found.groups]
    first = state.sequences.differences[0]
    return [list(first.ranks), *(list(found.ranks) for found in first.deviations)]


def _make_values(state: RunState) -> Json | None:
    """Return the record of the latest comparison of values that found no difference."""
    if state.sequences is None or (last := state.sequences.values.last) is None:
        return None
    return {
        "at_s": _compute_seconds_since(state.began_at, last.at),
        "program": str(state.sequences.names[last.identity]),
        "number": last.number,
        "arrays": last.arrays,
        "ranks": last.ranks,
        "count": state.sequences.values.count,
    }


def _make_waits(ended: Attempt, ended_s: float | None) -> list[Json]:
    """Return the record of the ranks' waits, until the reason to end became known."""
    state, began_at = ended.state, ended.state.began_at
    end = began_at + (ended.seconds if ended_s is None else ended_s)
    return [
        {
            "place": wait.place,
            "where": wait.where or None,
            "arrived": [[rank, _compute_seconds_since(began_at, at)] for rank, at in wait.arrived],
            "late": list(wait.late),
            "until_s": _compute_seconds_since(began_at, wait.until),
        }
        for wait in collect_waits(state, end)
    ]


def _make_rank(run: RankRun, state: RunState, culprit: int | None) -> Json:
    count, began_at = len(state.ranks), state.began_at
    process, membership, usage = run.process, run.membership, run.usage
    status = process.status
    samples = thin_samples(usage.samples, max(_LEAST_SAMPLES, _MOST_SAMPLES // count))
    # The rank to blame keeps all of its output.
    tail = _MOST_TAIL if run.process_id == culprit else max(_LEAST_TAIL, _MOST_TAIL // (2 * count))
    versions = membership.imported or ImportedJax()
    used = status is not None or bool(usage.samples)
    cpu_s = max([usage.cpu_s or 0.0, *(sample.cpu_s for sample in usage.samples)])
    peak_kib = max([usage.peak_kib or 0, *(sample.rss_kib for sample in usage.samples)])
    outcome = _classify_outcome(run)
    return {
        "rank": run.process_id,
        "host": run.host,
        "pid": process.pid,
        "started_s": _compute_seconds_since(began_at, process.started_at),
        "joined_s": _compute_seconds_since(began_at, membership.joined_at),
        "failed_s": _compute_seconds_since(began_at, run.failed_at),
        "ended_s": _compute_seconds_since(began_at, process.ended_at),
        "outcome": outcome,
        "words": (describe_rank_failure if outcome == "failed" else describe_rank_end)(run),
        "exit_status": run.exit_status if status is not None or run.hidden_failure else None,
        "exception": _make_exception(run),
        "jax": versions.jax or None,
        "jaxlib": versions.jaxlib or None,
        "python": versions.python or None,
        "joining_s": _compute_seconds_since(began_at, membership.joining_at),
        "first_output_s": _compute_seconds_since(began_at, process.first_output_at),
        "leaving_s": _compute_seconds_since(began_at, membership.leaving_at),
        "signal": get_signal_name(-status) if status is not None and status < 0 else None,
        "signals_sent": [get_signal_name(signum) for signum in process.signals],
        "killer": process.killer or None,
        "platform": run.compilations.platform or None,
        **_make_gpus(run, began_at, max(_LEAST_SAMPLES, _MOST_SAMPLES // count)),
        "cores": run.share.cores or None,
        "compiled": _make_compilations(run),
        "compiled_last": _make_latest_program(run),
        "programs": run.programs.total or None,
        "last_programs": _make_last_programs(run, state),
        "cpu_s": round(cpu_s, 2) if used else None,
        "peak_kib": peak_kib if used else None,
        "samples": [[round(s.at - began_at, 3), round(s.cpu_s, 2), s.rss_kib] for s in samples],
        "last_lines": {
            "stdout": select_last_lines(run.stdout, tail),
            "stderr": select_last_lines(run.stderr, tail),
        },
        "log_files": _make_log_paths(run),
    }


def _make_gpus(run: RankRun, began_at: float, most: int) -> Json:
    """Return the record of a rank's GPUs; with at most `most` samples."""
    used = run.usage.gpus
    found = ",".join(str(gpu.number) for gpu, _ in used.latest)
    samples = used.samples[:: -(-len(used.samples) // most) or 1]
    return {
        "gpus": run.share.gpus or found or None,
        "gpu_use": used.list_rows(),
        "gpu_peak_mib": used.peak_mib if used.latest else None,
        "gpu_samples": [[round(s.at - began_at, 3), s.mib, s.busy] for s in samples],
    }


def _make_compilations(run: RankRun) -> dict[str, Any] | None:
    """Return counts and times of the programs that a rank compiled and loaded; None for none."""
    had = run.compilations
    if not had.compiled + had.loaded:
        return None
    return {
        "programs_compiled": had.compiled,
        "compiling_s": round(had.compiled_s, 3),
        "programs_loaded": had.loaded,
        "saved_s": round(had.saved_s, 3),
    }


def _make_last_programs(run: RankRun, state: RunState) -> list[Json]:
    """Return the latest programs over several processes that a rank has begun."""
    if state.sequences is None:
        return []
    return [
        {"number": number, "name": program.title, "where": program.where or None}
        for number, program in state.sequences.list_last(run.process_id, _MOST_PROGRAMS)
    ]


def _make_log_paths(run: RankRun) -> Json | None:
    if run.share.log_folder is None:
        return None
    start = os.path.join(run.share.log_folder, str(run.process_id))
    return {"stdout": f"{start}.out", "stderr": f"{start}.err"}


def _classify_outcome(run: RankRun) -> str:
    """Return a rank's outcome: "failed", "consequence", "lost", "unknown", "ended" or "stopped"."""
    if run.failed:
        return "consequence" if determine_verdict(run) is Verdict.VICTIM else "failed"
    if run.status is None:
        return "lost" if run.process.lost else "unknown"
    return "ended" if run.status == 0 else "stopped"


def _make_exception(run: RankRun) -> Json | None:
    failure = run.failure
    if failure is None or failure.exited:
        return None
    lines = omit_middle(failure.traceback.rstrip().splitlines())
    return {
        "name": failure.exception,
        "headline": extract_headline(failure)[:_LONGEST],
        "where": failure.where,
        "line": failure.line,
        "traceback": [line[:_LONGEST] for line in lines],
    }


def _make_latest_program(run: RankRun) -> Json | None:
    if (latest := run.compilations.latest) is None:
        return None
    return {"name": format_title(latest.name), "where": latest.where or None}


def thin_samples(samples: Sequence[Sample], most: int) -> list[Sample]:
    """Return at most `most` samples: the last, and the peak of memory in each of equal parts."""
    if len(samples) <= most:
        return list(samples)
    rest, parts = samples[:-1], most - 1
    edges = [len(rest) * part // parts for part in range(parts + 1)]
    kept = [
        max(rest[edges[part] : edges[part + 1]], key=lambda sample: sample.rss_kib)
        for part in range(parts)
    ]
    return [*kept, samples[-1]]


def select_last_lines(text: str, most: int) -> list[str]:
    """Return a stream's last lines as a terminal shows them, without overwritten text.

    Args:
        text: text of the stream.
        most: number of characters at the end of the text to use.

    """
    lines = text[-most:].split("\n")[-_LAST_LINES - 1 :]
    if lines[-1] == "":
        lines.pop()
    shown = [line.rstrip("\r").rpartition("\r")[2] for line in lines[-_LAST_LINES:]]
    return [line if len(line) <= _LONGEST else f"... {line[-_LONGEST:]}" for line in shown]


def _compute_seconds_since(began_at: float, at: float | None) -> float | None:
    """Return the seconds from `began_at` to `at`, rounded to milliseconds; None if `at` is None."""
    return None if at is None else round(at - began_at, 3)


# --- past waits of a run ---

INITIALIZE = "initialize()"
EXIT = "JAX's exit barrier"

# Shorter waits are not reported.
_SHORTEST_S = 0.1
# Ranks that arrive in this last part of a wait count as late too, beside the last.
_LATE = 0.1


class PastWait(Value):
    """A wait of some ranks for others.

    Args:
        place: name of the program, or one of the constants above.
        where: the user's line, as `file:line`; "" if there is none.
        arrived: (rank, time of arrival) of each rank that arrived, in order of time.
        late: the ranks that the other ranks waited for.
        until: time at which the wait ended.

    """

    place: str
    where: str
    arrived: tuple[tuple[int, float], ...]
    late: tuple[int, ...]
    until: float


def collect_waits(state: RunState, end: float) -> list[PastWait]:
    """Return the waits of a run in initialize(), in programs at its end, and in the exit barrier.

    Args:
        state: state of the run.
        end: time at which the reason to end the run became known, else the end of the run.

    """
    runs = state.ranks.values()
    calls = {run.process_id: run.membership.joining_at for run in runs}
    lines = {run.membership.call.where for run in runs if run.membership.call}
    where = lines.pop() if len(lines) == 1 else ""
    joined = [run for run in runs if run.membership.joined_at is not None and not run.failed]
    done = {run.process_id: run.membership.leaving_at for run in joined}
    found = [_make_wait(INITIALIZE, where, calls, end), _make_wait(EXIT, "", done, end)]
    for gap in state.gaps:
        begun = {**dict.fromkeys(gap.begun, gap.since), **dict.fromkeys(gap.behind)}
        found.append(_make_wait(gap.program.title, gap.program.where, begun, end))
    waits = (wait for wait in found if wait is not None)
    return sorted(waits, key=lambda wait: wait.arrived[0][1])


def _make_wait(
    place: str, where: str, times: Mapping[int, float | None], end: float
) -> PastWait | None:
    """Return a wait, from the time of arrival of each rank; None if no rank waited 0.1 s."""
    arrived = [(at, rank) for rank, at in times.items() if at is not None and at <= end]
    if not arrived:
        return None
    ordered = tuple((rank, at) for at, rank in sorted(arrived))
    first, last = ordered[0][1], ordered[-1][1]
    late: Iterable[int] = times.keys() - {rank for rank, _ in ordered}
    until = end if late else last
    late = late or (rank for rank, at in ordered if at > last - _LATE * (last - first))
    if until - first < _SHORTEST_S:
        return None
    return PastWait(place, where, ordered, tuple(sorted(late)), until)

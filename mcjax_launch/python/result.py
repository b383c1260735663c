"""Reports of a job: its lines and events while it runs, and the result that `launch` returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Self

from mcjax_launch.errors import LaunchError
from mcjax_launch.wire.value import Value

Stream = Literal["stdout", "stderr"]


class Line(Value):
    """Line printed by a rank.

    Args:
        rank: number of the rank.
        host: name of the rank's host.
        stream: "stdout" or "stderr".
        text: the line without its newline; of a line over 1 MiB, a part.

    """

    rank: int
    host: str
    stream: Stream
    text: str


class Event(Value):
    """Event in a job; kinds and fields have the names that `--events` gives them.

    Args:
        kind: "started": a rank's process runs; "joining": it has called initialize(); "joined":
            initialize() has returned; "failed": its program has failed, as `message` says;
            "ended": its process has ended, with `exit_status`; "note": a line of the launcher's.
        rank: number of the rank; None for "note".
        host: name of the rank's host; "" for "note".
        message: the failure or the end in words, for "failed" and "ended"; else "".
        text: the line, for "note"; else "".
        pid: process id, for "started"; else None.
        exit_status: for "ended": 128 + n if signal n ended the process; else None.

    """

    kind: Literal["started", "joining", "joined", "failed", "ended", "note"]
    rank: int | None = None
    host: str = ""
    message: str = ""
    text: str = ""
    pid: int | None = None
    exit_status: int | None = None


OnLine = Callable[[Line], object]
OnEvent = Callable[[Event], object]


class RankResult(Value):
    """Result of a rank.

    Times are in seconds since the job began (since its last attempt, if restarted), or None if
    the event did not happen.

    Args:
        rank: number of the rank: JAX's process id.
        host: name of its host.
        exit_status: status of its process: 128 + n if signal n ended it; None if unknown.
        outcome: "ended" (by itself, with 0), "failed", "consequence" (it failed because another
            rank did), "stopped" (the launcher ended it), "lost" (with its host) or "unknown".
        message: outcome in words: "ValueError: bad batch", "killed by SIGSEGV ...".
        exception: line that names the exception that ended it; None without one.
        traceback: traceback of that exception, as text; None without one.
        stdout, stderr: its output, at most the last 128 KiB, less with more than 64 ranks;
            the log files of `log_dir` have all of it.
        pid: process id; None if it was not started.
        started_s, joined_s, ended_s: times of the start, initialize()'s return and the end.
        cpu_s, peak_kib: CPU time in seconds and peak memory in KiB; None if unknown.

    """

    rank: int
    host: str
    exit_status: int | None
    outcome: Literal["ended", "failed", "consequence", "stopped", "lost", "unknown"]
    message: str
    exception: str | None
    traceback: str | None
    stdout: str
    stderr: str
    pid: int | None
    started_s: float | None
    joined_s: float | None
    ended_s: float | None
    cpu_s: float | None
    peak_kib: int | None

    def __repr__(self) -> str:
        return f"<rank {self.rank} on {self.host}: {self.message}>"


class RootCause(Value):
    """The reason why a job failed.

    Args:
        message: the reason in one line: "rank 1 failed: ValueError: bad batch".
        rank: rank that caused the failure; None for a limit, a signal or a lost host.
        ranks: all ranks that failed in the same way, including `rank`.
        host: name of the rank's host; None if unknown.
        exception: line that names the exception; None without one.
        where: the user's line, as "/work/train.py:18 in load"; None if unknown.
        traceback: the exception's traceback, as text; None without one.
        lines: the launcher's summary of the failure.

    """

    message: str
    rank: int | None
    ranks: tuple[int, ...]
    host: str | None
    exception: str | None
    where: str | None
    traceback: str | None
    lines: tuple[str, ...]

    def __repr__(self) -> str:
        return f"<{self.message}>"


class Result(Value):
    """Result of a job.

    Args:
        exit_status: exit status of the command (docs/reference.md); 0 for success.
        message: line that says how the job ended.
        root_cause: cause of the job's failure; None if it did not fail.
        ranks: the results of the ranks that this launcher started, in order.
        seconds: duration, including restarts.
        restarts: number of restarts of the job.
        hosts: names of the hosts in its last attempt.
        job_id: id of the job's last attempt.
        log_dir: folder with the log files; None without one.
        record: its last attempt, as in the file of `--report` (docs/reference.md: `attempts`).

    """

    exit_status: int
    message: str
    root_cause: RootCause | None
    ranks: tuple[RankResult, ...]
    seconds: float
    restarts: int
    hosts: tuple[str, ...]
    job_id: str
    log_dir: str | None
    record: dict[str, Any]

    @property
    def ok(self) -> bool:
        """True if the job succeeded (exit status 0)."""
        return self.exit_status == 0

    def check(self) -> Self:
        """Return this result if the job succeeded.

        Raises:
            JobFailed: the job has failed.

        """
        if not self.ok:
            raise JobFailed(self)
        return self

    def __repr__(self) -> str:
        ranks = f"{len(self.ranks)} rank{'s' if len(self.ranks) != 1 else ''}"
        return f"<Result: {self.message}; {ranks}, {self.seconds:.1f} s>"


class JobFailed(LaunchError):
    """Error for a job that was started and has failed; `Result.check` raises it.

    Attributes:
        result: result of the job.
        status: exit status of the job.

    """

    def __init__(self, result: Result, message: str = "") -> None:
        super().__init__(message or result.message, result.exit_status)
        self.result = result
        cause = result.root_cause
        if cause is not None:
            for line in cause.lines[1:]:
                self.add_note(line)

    def __reduce__(self) -> tuple[type[JobFailed], tuple[Result, str]]:
        return JobFailed, (self.result, str(self))


def make_result(summary: Mapping[str, Any]) -> Result:
    """Return the result of a job from its event `summary`."""
    ranks = tuple(map(_make_rank_result, summary["ranks"]))
    cause = summary["root_cause"]
    own = ("traceback", "stdout", "stderr")
    told = [{name: rank[name] for name in rank.keys() - own} for rank in summary["ranks"]]
    same = ("exit_status", "message", "seconds", "restarts", "job_id", "log_dir")
    return Result(
        root_cause=None if cause is None else _make_root_cause(cause, summary["lines"], ranks),
        ranks=ranks,
        hosts=tuple(summary["hosts"]),
        record={**summary["record"], "ranks": told},
        **{name: summary[name] for name in same},
    )


def _make_rank_result(told: Mapping[str, Any]) -> RankResult:
    renamed = {"message": told["words"], "exception": None}
    if told["traceback"] is not None:
        renamed["exception"] = told["exception"]["headline"]
    names = (name for name in RankResult._fields if name not in renamed)
    return RankResult(**{name: told[name] for name in names}, **renamed)


def _make_root_cause(
    told: Mapping[str, Any], lines: Sequence[str], ranks: Sequence[RankResult]
) -> RootCause:
    culprit = next((rank for rank in ranks if rank.rank == told["rank"]), None)
    return RootCause(
        ranks=tuple(told["ranks"]),
        exception=culprit.exception if culprit is not None else None,
        lines=tuple(lines),
        **{name: told[name] for name in ("message", "rank", "host", "where", "traceback")},
    )

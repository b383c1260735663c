"""Result of a job, as `launch` returns it; values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self

from mcjax_launch.errors import LaunchError
from mcjax_launch.kernel.wire.value import Value


class RankResult(Value):
    """The end of a rank.

    Times are in seconds since the job began (its last attempt, if it was restarted), None where
    something has not happened.

    Args:
        rank: its number, JAX's process id.
        host: where it ran.
        exit_status: of its process, 128 + n if signal n ended it; None if it is not known.
        outcome: "ended" (by itself, with 0), "failed", "consequence" (it failed because another
            rank did), "stopped" (the launcher ended it), "lost" (with its host) or "unknown".
        message: the same in words: "ValueError: bad batch", "killed by SIGSEGV ...".
        exception: the line that names the exception that ended it, or None.
        traceback: that exception's, as text.
        stdout, stderr: what it printed; of much, the last: 128 KiB, less with more than 64 ranks.
            `log_dir` keeps all of it.
        pid: of its process.
        started_s, joined_s, ended_s: when its process began, initialize() returned, it ended.
        cpu_s, peak_kib: the processor time and the memory that it used.

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
        message: in one line: "rank 1 failed: ValueError: bad batch".
        rank: the rank to blame; None if it was none: a limit, a signal, a lost host.
        ranks: all ranks that failed in the same way, with `rank`.
        host: of the rank.
        exception: the line that names the exception, or None.
        where: the user's line, as "/work/train.py:18 in load", if it is known.
        traceback: the exception's traceback, as text.
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
    """The end of a job.

    Args:
        exit_status: as the command's, see docs/reference.md; 0 if all went well.
        message: the same in one line.
        root_cause: cause of its failure; None if it did not fail.
        ranks: the results of the ranks that this launcher started, in order.
        seconds: how long it took, restarts and all.
        restarts: how often it was started again.
        hosts: where it ran at last.
        job_id: of its last attempt.
        log_dir: the folder with the log files, if there is one.
        record: of its last attempt, as `--report` writes it (docs/reference.md: `attempts`).

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
        """True if all went well."""
        return self.exit_status == 0

    def check(self) -> Self:
        """Return this result, if all went well.

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
    """The error of a job that has been started and has failed; `Result.check` raises it.

    Attributes:
        result: how it ended.
        status: its exit status.

    """

    def __init__(self, result: Result) -> None:
        super().__init__(result.message, result.exit_status)
        self.result = result
        cause = result.root_cause
        if cause is not None:
            for line in cause.lines[1:]:
                self.add_note(line)

    def __reduce__(self) -> tuple[type[JobFailed], tuple[Result]]:
        return JobFailed, (self.result,)


def result_of(summary: Mapping[str, Any]) -> Result:
    """Return the result of a job from its event `summary`."""
    ranks = tuple(map(_rank, summary["ranks"]))
    cause = summary["root_cause"]
    own = ("traceback", "stdout", "stderr")
    told = [{name: rank[name] for name in rank.keys() - own} for rank in summary["ranks"]]
    return Result(
        exit_status=summary["exit_status"],
        message=summary["message"],
        root_cause=None if cause is None else _cause(cause, summary["lines"], ranks),
        ranks=ranks,
        seconds=summary["seconds"],
        restarts=summary["restarts"],
        hosts=tuple(summary["hosts"]),
        job_id=summary["job_id"],
        log_dir=summary["log_dir"],
        record={**summary["record"], "ranks": told},
    )


def _rank(told: Mapping[str, Any]) -> RankResult:
    renamed = {"message": told["words"], "exception": None}
    if told["traceback"] is not None:
        renamed["exception"] = told["exception"]["headline"]
    names = (name for name in RankResult._fields if name not in renamed)
    return RankResult(**{name: told[name] for name in names}, **renamed)


def _cause(told: Mapping[str, Any], lines: Sequence[str], ranks: Sequence[RankResult]) -> RootCause:
    culprit = next((rank for rank in ranks if rank.rank == told["rank"]), None)
    return RootCause(
        message=told["message"],
        rank=told["rank"],
        ranks=tuple(told["ranks"]),
        host=told["host"],
        exception=culprit.exception if culprit is not None else None,
        where=told["where"],
        traceback=told["traceback"],
        lines=tuple(lines),
    )

"""The end of a run as the fields of the event `summary`, which have all that a caller may ask."""

import time

from mcjax_launch.diagnosis.attempt import Attempt, JobOutcome
from mcjax_launch.report import record
from mcjax_launch.runs.rank_run import RankRun


class RunEnding:
    """A recorder that keeps the last attempt of a run."""

    def __init__(self) -> None:
        self._began_at = time.monotonic()
        self._last: Attempt | None = None
        self._restarts = -1

    def on_attempt_end(self, attempt: Attempt) -> None:
        """Keep an attempt, in place of the previous attempt."""
        if self._last is None:  # with --watch the wait for a save comes before
            self._began_at = attempt.state.began_at
        self._last = attempt
        self._restarts += 1

    def on_job_end(self, status: int, end: str) -> None:
        """Do nothing: `make_summary_fields` gets the outcome instead."""

    def make_summary_fields(self, outcome: JobOutcome) -> record.Json:
        """Return the fields of the event `summary` for the last attempt; see `events.kinds`.

        Call it only after `on_attempt_end`.
        """
        assert self._last is not None
        state = self._last.state
        told = record.make_attempt_record(self._last, state.began_at)
        ranks = [_make_rank(state.ranks[rank["rank"]], rank) for rank in told.pop("ranks")]
        return {
            "exit_status": outcome.status,
            "message": outcome.message,
            "lines": told["cause"]["report"],
            "root_cause": _make_root_cause(outcome, told["cause"], ranks)
            if outcome.status
            else None,
            "ranks": ranks,
            "hosts": told["hosts"],
            "seconds": round(time.monotonic() - self._began_at, 3),
            "restarts": self._restarts,
            "job_id": told["job_id"],
            "log_dir": told["log_dir"],
            "record": told,
        }


def _make_rank(run: RankRun, told: record.Json) -> record.Json:
    failure = run.failure
    has_raised = failure is not None and not failure.exited
    return {
        **told,
        "traceback": failure.traceback if failure is not None and has_raised else None,
        "stdout": run.stdout,
        "stderr": run.stderr,
    }


def _make_root_cause(
    outcome: JobOutcome, cause: record.Json, ranks: list[record.Json]
) -> record.Json:
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

"""The end of a run, determined once for the summary, the record and restarts; pure."""

from __future__ import annotations

from collections.abc import Iterable

from mcjax_launch.journal.facts import Finding
from mcjax_launch.journal.rank_run import RankRun, Verdict
from mcjax_launch.journal.state import RunState
from mcjax_launch.journal.stop_reasons import StopReason
from mcjax_launch.journal.verdict import determine_verdict
from mcjax_launch.options import features as declared
from mcjax_launch.wire.value import Value


class RankFailed(Value):
    """The ending of a run by the failure of a rank.

    Args:
        first: the first rank that failed by itself; if all are victims, the first victim.
        culprit: the rank to blame: `first`, or the rank that caused its failure.
        alike: the ranks that failed in the same way as the culprit, including the culprit.
        found: finding that explains the failure; None if the culprit just failed.

    """

    first: RankRun
    culprit: RankRun
    alike: tuple[RankRun, ...]
    found: Finding | None = None

    @property
    def status(self) -> int:
        """The run's exit status."""
        return self.first.exit_status


class JobStopped(Value):
    """The ending of a run for another reason than a rank's failure.

    Args:
        stop: reason for the end.
        at: time at which the reason became known, in time.monotonic's seconds; None if unknown.

    """

    stop: StopReason
    at: float | None

    @property
    def status(self) -> int:
        """The run's exit status."""
        return self.stop.status


class Completed(Value):
    """The ending of a run whose ranks all exited; the status may still not be 0."""

    status: int


class NotStarted(Value):
    """The ending of a run that could not be started."""

    message: str
    status: int


Ending = RankFailed | JobStopped | Completed | NotStarted


def determine_ending(state: RunState) -> Ending:
    """Determine the ending of a finished run."""
    runs = state.ranks.values()
    if state.stop is not None:
        stop, preempted = state.stop, state.preempted_status
        all_well = bool(runs) and all(run.status == 0 for run in runs)
        if preempted is not None and stop.is_external and all_well:
            stop = stop.copy_with(status=preempted)
        return JobStopped(stop, state.stop_at)
    first = find_first_failure(runs)
    if state.host_lost is not None:  # and the job went on
        lost = min(run.order for run in runs if run.process.lost)
        if first is None or lost < first.order:
            return JobStopped(state.host_lost, None)
    if first is not None:
        return _find_root_cause(state, first)
    assert all(run.is_gone for run in runs), "the end of a rank was not reported"
    return Completed(next((run.exit_status for run in runs if run.status), 0))


def find_first_failure(runs: Iterable[RankRun]) -> RankRun | None:
    """Return the first rank that failed by itself, else the first victim; None if none failed."""
    failed = sorted((run for run in runs if run.failed), key=lambda run: run.order)
    own = (run for run in failed if determine_verdict(run) is Verdict.FAILED)
    return next(own, failed[0] if failed else None)


def _find_root_cause(state: RunState, first: RankRun) -> RankFailed:
    """Return the ending by a rank's failure; without explanations the first to fail is to blame."""
    causes = declared.load("causes")
    found = None if causes is None else causes.find_root_cause(state, first)
    if found is not None and not found.ranks:
        return RankFailed(first, first, (), found)
    if found is not None:
        culprit = state.ranks[found.ranks[0]]
        return RankFailed(first, culprit, (culprit,), found)
    # Some may be killed while they fail for the same reason.
    failing = [run for run in state.ranks.values() if run.failed or run.failure is not None]
    judged, key = (determine_verdict(first), Verdict.STOPPED), _make_failure_key(first)
    same = (run for run in failing if _make_failure_key(run) == key)
    return RankFailed(first, first, tuple(run for run in same if determine_verdict(run) in judged))


def _make_failure_key(run: RankRun) -> tuple[object, ...]:
    """Return a key that is equal for ranks that failed in the same way."""
    failure = run.failure
    if failure is None:
        return (run.status,)
    placed = failure.placed
    where = placed.where or failure.summary  # before Python 3.12 an early exit has no line
    return placed.exception, where, failure.exited, failure.status

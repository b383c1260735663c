"""Verdicts on the ends of ranks, each determined once; pure.

Who failed because JAX had lost another rank is known to `explain/`; without it, no rank did.
"""

from mcjax_launch.journal.rank_run import RankRun, Verdict
from mcjax_launch.options import features as declared


def determine_verdict(run: RankRun) -> Verdict | None:
    """Return the verdict on a rank's end; None if it still runs, or was lost with its host.

    Call this only after all of the rank's output has arrived: the verdict is kept.
    """
    if run.verdict is None:
        run.verdict = _compute_verdict(run)
    return run.verdict


def _compute_verdict(run: RankRun) -> Verdict | None:
    if run.was_interrupted:
        return Verdict.STOPPED
    if run.failed:
        if (victims := declared.load("victims")) is not None and victims.is_victim(run):
            return Verdict.VICTIM
        return Verdict.STOPPED if run.after_signal else Verdict.FAILED
    if run.status is None:
        return None
    return Verdict.STOPPED if run.status else Verdict.FINE

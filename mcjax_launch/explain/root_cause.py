"""Root cause of a rank's failure, if another rank is to blame; pure."""

from __future__ import annotations

import signal

from mcjax_launch.explain.jax_messages.known_errors import says_other_collective
from mcjax_launch.explain.rules import apply_rules
from mcjax_launch.explain.view import Occasion, View
from mcjax_launch.journal.facts import Finding
from mcjax_launch.journal.rank_run import RankRun, Verdict
from mcjax_launch.journal.state import RunState
from mcjax_launch.journal.verdict import determine_verdict


def find_root_cause(state: RunState, first: RankRun) -> Finding | None:
    """Return what explains the first failure of a run; None if that rank just failed."""
    is_victim = determine_verdict(first) is Verdict.VICTIM
    # A second process of a rank may fail in its own way before JAX ends both for it.
    if is_victim or ran_other_collective(first) or first.membership.second_process is not None:
        view = View(state, first.failed_at or 0.0, first=first)
        return next(apply_rules(view, Occasion.DEATH), None)
    return None


def ran_other_collective(run: RankRun) -> bool:
    """Return whether a rank failed because another rank ran a different collective."""
    failure = run.failure
    told = run.stderr if failure is None or failure.exited else failure.summary
    if run.status != -signal.SIGABRT and failure is None:
        return False
    return says_other_collective(told)

"""Victims: ranks that failed because JAX had lost another rank; pure.

They are recognized by JAX's messages in their output. The rank that caused a victim's failure is
known only at the end of the run: see `causes.find_root_cause`.
"""

import signal

from mcjax_launch.features.explain.jax_messages.known_errors import says_other_collective
from mcjax_launch.features.explain.jax_messages.lost_peer import is_of_lost_peer, says_ended_by_jax
from mcjax_launch.features.explain.jax_messages.tracebacks import Traceback, find_tracebacks
from mcjax_launch.journal.rank_run import RankRun
from mcjax_launch.wire.hook_messages import Failed, Raised
from mcjax_launch.wire.source_lines import find_quoted_exception

# A rank that exits may say why in the last lines of its stderr.
_LAST_LINES = 5


def get_failure_text(run: RankRun) -> str:
    """Return a rank's last stderr, followed by its exception's message if known."""
    failure = run.failure
    if failure is None:
        return run.stderr
    handled = failure.handled
    return run.stderr + (failure.summary or (handled.summary if handled is not None else ""))


def is_victim(run: RankRun) -> bool:
    """Return whether a rank failed because JAX had lost another rank."""
    failure = run.failure
    if failure is not None and not failure.exited:
        # Later on a time-out may be the rank's own.
        joining = run.membership.joined_at is None
        inside = [cause for cause in failure.causes if cause.inside]  # an exception group's
        return (
            _is_of_lost_peer(failure, joining=joining)
            or any(each.is_victims for each in _parse_tracebacks(failure.traceback))
            or (bool(inside) and all(map(_is_of_lost_peer, inside)))
        )
    if is_aborted_by_jax(run):
        return True
    if failure is not None and failure.handled is not None and _is_of_lost_peer(failure.handled):
        return True
    exited = failure is not None or (run.status or 0) > 0
    return exited and _ends_with_loss(run.stderr)


def is_aborted_by_jax(run: RankRun) -> bool:
    """Return whether JAX aborted a rank's process because of another rank."""
    return run.status == -signal.SIGABRT and says_ended_by_jax(run.stderr)


def ran_other_collective(run: RankRun) -> bool:
    """Return whether a rank failed because another rank ran a different collective."""
    failure = run.failure
    if run.status != -signal.SIGABRT and failure is None:
        return False
    return says_other_collective(
        run.stderr if failure is None or failure.exited else failure.summary
    )


def _is_of_lost_peer(told: Failed | Raised, *, joining: bool = False) -> bool:
    """Return whether an exception is JAX's report of a lost peer, not a callback's exception."""
    quoted = find_quoted_exception(told.summary)
    if quoted is None:
        return is_of_lost_peer(told.exception, told.summary, joining=joining)
    return is_of_lost_peer(quoted.line.partition(":")[0].rpartition(".")[2], quoted.line)


def _ends_with_loss(stderr: str) -> bool:
    """Return whether the last exception on stderr is about a lost peer."""
    if any(each.is_victims for each in _parse_tracebacks(stderr)[-1:]):
        return True
    return any(is_of_lost_peer("", line) for line in stderr.splitlines()[-_LAST_LINES:])


def _parse_tracebacks(text: str) -> list[Traceback]:
    return find_tracebacks(text.encode("utf-8", "replace") + b"\n")

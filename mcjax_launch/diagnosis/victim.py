"""Whether a rank was taken down by another's death, by JAX's own words; pure."""

import signal

from mcjax_launch.jax_messages.lost_peer import ENDED_BY_JAX, is_of_lost_peer
from mcjax_launch.jax_messages.tracebacks import whose
from mcjax_launch.protocol.hook_messages import Failed
from mcjax_launch.run.state import RankRun

# Of stderr, in which one that exits may say why.
_LAST_LINES = 5


def is_victim(run: RankRun) -> bool:
    """Whether a rank bears the marks of another's death."""
    failure = run.failure
    if failure is not None and not failure.exited:
        # While it waits for others that is their affair; later on it may be its own.
        more = () if run.joined_at is not None else ("DEADLINE_EXCEEDED",)
        return is_of_lost_peer(failure.exception, failure.summary, more) or _chained(failure)
    if run.status == -signal.SIGABRT and any(mark in run.stderr for mark in ENDED_BY_JAX):
        return True
    exited = failure is not None or (run.status or 0) > 0
    return exited and ((failure is not None and _handled(failure)) or _said(run.stderr))


def _chained(failure: Failed) -> bool:
    """Whether an exception was raised because of one of a lost peer, or while that was handled."""
    return True in whose(failure.traceback.encode("utf-8", "replace"))


def _handled(failure: Failed) -> bool:
    """Whether it exited while it handled such an exception."""
    handled = failure.handled
    return handled is not None and is_of_lost_peer(handled.exception, handled.summary)


def _said(stderr: str) -> bool:
    """Whether such an exception is the last of which a rank that has exited has told."""
    return whose(stderr.encode("utf-8", "replace") + b"\n")[-1:] == [True] or any(
        is_of_lost_peer("", line) for line in stderr.splitlines()[-_LAST_LINES:]
    )

"""Whether a rank was taken down by another's death, by JAX's own words; pure."""

import signal

from mcjax_launch.history import RankRun

# What such a rank says.
_MARKS = (
    "Terminating process because the JAX distributed service detected fatal errors",
    "another task died",
    "Shutdown barrier has failed",
    "stopped sending heartbeats",
)
#: What an exception of JAX's says where a peer did not come in time.
GAVE_UP = "Timed out waiting"
# And in the exceptions of collectives that have lost a peer.
_JAX_EXCEPTIONS = ("JaxRuntimeError", "XlaRuntimeError")
_EXCEPTION_MARKS = (
    "Connection closed by peer",
    "Connection reset by peer",
    "Socket closed",
    "Connection refused",
    GAVE_UP,
    *_MARKS,
)


def is_victim(run: RankRun) -> bool:
    """Whether a rank bears the marks of another's death."""
    if run.failure is not None:
        summary = run.failure.get("summary", "")
        of_jax = run.failure.get("exception") in _JAX_EXCEPTIONS or "Gloo" in summary
        marks: tuple[str, ...] = _EXCEPTION_MARKS
        if run.joined_at is None:  # it waited for others; later on that may be its own affair
            marks = (*marks, "DEADLINE_EXCEEDED")
        return of_jax and any(mark in summary for mark in marks)
    return run.status == -signal.SIGABRT and any(m in run.stderr for m in _MARKS)

"""Whether a rank was taken down by another's death, by JAX's own words; pure."""

import signal
from collections.abc import Sequence

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
        # While it waits for others that is their affair; later on it may be its own.
        more = () if run.joined_at is not None else ("DEADLINE_EXCEEDED",)
        name, summary = str(run.failure.get("exception")), str(run.failure.get("summary", ""))
        return is_exception_of_victim(name, summary, more)
    return run.status == -signal.SIGABRT and any(m in run.stderr for m in _MARKS)


def is_exception_of_victim(name: str, words: str, more_marks: Sequence[str] = ()) -> bool:
    """Whether an exception is JAX's about the loss of a peer.

    Args:
        name: of its class.
        words: its message, with or without that.
        more_marks: what else says so.

    """
    of_jax = name in _JAX_EXCEPTIONS or "Gloo" in words
    return of_jax and any(mark in words for mark in (*_EXCEPTION_MARKS, *more_marks))

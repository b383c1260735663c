"""What JAX says in a rank that has lost another; pure."""

from collections.abc import Sequence

#: What a process says that JAX ends for that reason.
ENDED_BY_JAX = (
    "Terminating process because the JAX distributed service detected fatal errors",
    "another task died",
    "Shutdown barrier has failed",
    "stopped sending heartbeats",
)
#: What an exception says where a peer did not come in time.
GAVE_UP = ("Timed out waiting", "Barrier timed out")
_JAX_EXCEPTIONS = ("JaxRuntimeError", "XlaRuntimeError")
# And what those of collectives say that have lost a peer.
_MARKS = (
    "Connection closed by peer",
    "Connection reset by peer",
    "Socket closed",
    "Connection refused",
    *GAVE_UP,
    *ENDED_BY_JAX,
)


def is_of_lost_peer(name: str, words: str, more_marks: Sequence[str] = ()) -> bool:
    """Whether an exception is JAX's about the loss of a peer.

    Args:
        name: of its class.
        words: its message, with or without that.
        more_marks: what else says so.

    """
    of_jax = name in _JAX_EXCEPTIONS or "Gloo" in words
    return of_jax and any(mark in words for mark in (*_MARKS, *more_marks))

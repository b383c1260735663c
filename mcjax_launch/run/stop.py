"""Reasons to end a job other than a rank's failure: values."""

import errno
import signal
from dataclasses import dataclass

from mcjax_launch.protocol import exit_status


@dataclass(frozen=True)
class Stop:
    """A reason to end the job other than a rank's failure.

    Args:
        message: what happened.
        status: the exit status it leads to.
        details: further lines.
        final: starting the job again would be no use, or is not wanted.
        needs_stacks: the ranks' stacks are to be shown first.

    """

    message: str
    status: int
    details: tuple[str, ...] = ()
    final: bool = True
    needs_stacks: bool = False


def interrupted(signum: int) -> Stop:
    """The end of a job by a signal to the launcher."""
    name = signal.Signals(signum).name
    return Stop(f"stopped by {name}", exit_status.of_signal(signum))


def reader_gone(error: OSError | None) -> Stop:
    """The end of a job whose output nothing reads, or which cannot be written.

    Args:
        error: what writing it led to, if anything.

    """
    message = "nothing reads the output any more"
    if error is not None and error.errno not in (errno.EPIPE, errno.EIO):
        message = f"stdout cannot be written: {error.strerror}"
    return Stop(message, exit_status.READER_GONE)

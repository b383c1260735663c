"""Reasons to end a job other than a rank's failure: values."""

from __future__ import annotations

import errno
import signal
from collections.abc import Sequence

from mcjax_launch.wire import exit_status
from mcjax_launch.wire.value import Value
from mcjax_launch.wording import format_one_line


class StopReason(Value):
    """A reason to end the job other than a rank's failure.

    Args:
        message: description of the reason, in one line.
        status: exit status of the launcher.
        details: further lines for the summary.
        final: True if restarting the job would be useless, or is not wanted.
        needs_stacks: True to show the ranks' stacks before the job ends.
        unread: True if nothing reads the output any more, so that one line is enough.
        rank: the rank to blame; None if there is none.
        is_external: True if a signal, or the loss of its host, has ended the job.
        saved: True if the job is started again because files were saved.

    """

    message: str
    status: int
    details: tuple[str, ...] = ()
    final: bool = True
    needs_stacks: bool = False
    unread: bool = False
    rank: int | None = None
    is_external: bool = False
    saved: bool = False

    @property
    def is_brief(self) -> bool:
        """True if the summary has only the message."""
        return self.unread or self.saved


def interrupted(signum: int) -> StopReason:
    """Return the reason for an end by a signal to the launcher."""
    name = signal.Signals(signum).name
    return StopReason(
        f"stopped by {name}", exit_status.compute_signal_status(signum), is_external=True
    )


def reader_gone(error: OSError | None) -> StopReason:
    """Return the reason for an end because the output cannot be written.

    Args:
        error: exception of the write; None if the reader was found to be gone without a write.

    """
    if error is not None and error.errno not in (errno.EPIPE, errno.EIO):
        message = f"stdout cannot be written: {error.strerror}"
        return StopReason(message, exit_status.READER_GONE)
    return StopReason("stopped: the reader of stdout is gone", exit_status.READER_GONE, unread=True)


def host_lost(host: str, why: str) -> StopReason:
    """Return the reason for an end because a host was lost with its ranks; `why` in words."""
    return StopReason(format_one_line(f"host {host}: {why}"), exit_status.HOST_LOST, final=False)


def agent_stopped(host: str, why: str) -> StopReason:
    """Return the reason for an end because an agent was stopped, as a rule by a scheduler."""
    return StopReason(f"host {host}: {why}", exit_status.HOST_LOST, is_external=True)


def internal_error(message: str) -> StopReason:
    """Return the reason for an end by a bug of mcjax-launch."""
    return StopReason(message, exit_status.INTERNAL_ERROR)


def out_of_time(message: str, details: Sequence[str], *, final: bool) -> StopReason:
    """Return the reason for an end because a time limit was reached.

    Args:
        message: description of the limit.
        details: lines on the positions of the ranks.
        final: True if restarting the job would be useless.

    """
    status = exit_status.TIMED_OUT
    return StopReason(message, status, tuple(details), final=final, needs_stacks=True)

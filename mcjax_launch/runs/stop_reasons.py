"""Reasons to end a job other than a rank's failure: values."""

from __future__ import annotations

import errno
import signal
from collections.abc import Sequence

from mcjax_launch.kernel.wire import exit_status
from mcjax_launch.kernel.wire.value import Value
from mcjax_launch.wording import one_line

#: Why no rank can join or go on any more.
NO_SERVICE = "process 0 has ended, and JAX's coordination service with it: let process 0 end last"


class StopReason(Value):
    """A reason to end the job other than a rank's failure.

    Args:
        message: what happened.
        status: the exit status it leads to.
        details: further lines.
        final: starting the job again would be no use, or is not wanted.
        needs_stacks: show the ranks' stacks first.
        unread: nothing reads the output any more, so one line on the end is enough.
        rank: the rank to blame, if any.
        told: a signal, such as a scheduler's, has told the job to end.
        saved: the job is started again because files were saved, and that has been printed.

    """

    message: str
    status: int
    details: tuple[str, ...] = ()
    final: bool = True
    needs_stacks: bool = False
    unread: bool = False
    rank: int | None = None
    told: bool = False
    saved: bool = False

    @property
    def is_brief(self) -> bool:
        """True if the message is all there is to say."""
        return self.unread or self.saved

    @property
    def ends_all(self) -> bool:
        """True if --watch ends with the job."""
        return self.told or self.status in (exit_status.READER_GONE, exit_status.INTERNAL_ERROR)


#: The cause of a fault that the user asked for, in words.
REHEARSED = "--rehearse"


def interrupted(signum: int, by: str = "") -> StopReason:
    """Return the reason for an end by a signal to the launcher.

    Args:
        signum: the signal.
        by: what has sent it, if that is known.

    """
    said = signal.Signals(signum).name + (f" ({by})" if by else "")
    return StopReason(f"stopped by {said}", exit_status.of_signal(signum), told=True)


def saved(changed: str) -> StopReason:
    """Return the reason to end a job whose files have been saved.

    Args:
        changed: the files, in words.

    """
    status = exit_status.of_signal(signal.SIGTERM)
    return StopReason(f"{changed}: starting again", status, saved=True)


def quit_debugger(rank: str, where: str) -> StopReason:
    """Return the reason for an end by the user, who quit a rank's debugger at `where`."""
    status = exit_status.of_signal(signal.SIGINT)
    return StopReason(f"stopped: the debugger of {rank} was quit at {where}", status)


def reader_gone(error: OSError | None) -> StopReason:
    """Return the reason for an end because the output cannot be written.

    Args:
        error: raised when it was written; None if its reader was found to be gone.

    """
    if error is not None and error.errno not in (errno.EPIPE, errno.EIO):
        message = f"stdout cannot be written: {error.strerror}"
        return StopReason(message, exit_status.READER_GONE)
    return StopReason("stopped: the reader of stdout is gone", exit_status.READER_GONE, unread=True)


def host_lost(host: str, why: str) -> StopReason:
    """Return the reason for an end because a host is gone, with its ranks."""
    return StopReason(one_line(f"host {host}: {why}"), exit_status.HOST_LOST, final=False)


def restart_impossible(why: str, status: int) -> StopReason:
    """Return the reason for an end because a rank cannot be restarted."""
    return StopReason(one_line(why), status, final=status != exit_status.HOST_LOST)


def agent_stopped(host: str, why: str) -> StopReason:
    """Return the reason for an end because an agent was stopped, as a rule by a scheduler."""
    return StopReason(f"host {host}: {why}", exit_status.HOST_LOST, told=True)


def internal_error(message: str) -> StopReason:
    """Return the reason for an end by a bug of mcjax-launch."""
    return StopReason(message, exit_status.INTERNAL_ERROR)


def out_of_time(message: str, details: Sequence[str], *, final: bool) -> StopReason:
    """Return the reason for an end because a time limit was reached.

    Args:
        message: which limit was reached.
        details: the positions of the ranks.
        final: starting the job again would be no use.

    """
    status = exit_status.TIMED_OUT
    return StopReason(message, status, tuple(details), final=final, needs_stacks=True)


def hopeless(rank: int | None, message: str, details: Sequence[str], *, final: bool) -> StopReason:
    """Return the reason to end a job that can never go on.

    Args:
        rank: the rank to blame; None if there is none.
        message: what it did.
        details: what to do about it.
        final: starting the job again would be no use.

    """
    return StopReason(message, exit_status.FAILED, tuple(details), final=final, rank=rank)


def unserved(rank: int, status: int) -> StopReason:
    """Return the reason for an end because a rank was restarted after process 0 had ended.

    Args:
        rank: the restarted rank; it is in initialize().
        status: of its previous process.

    """
    message = f"rank {rank} was restarted and calls initialize(), but {NO_SERVICE}"
    return StopReason(message, status, final=False, rank=rank)


def diverged(details: Sequence[str]) -> StopReason:
    """Return the reason to end a job whose ranks run different programs.

    Args:
        details: lines on which programs.

    """
    message = "--verify-spmd: the ranks run different programs"
    return StopReason(message, exit_status.FAILED, tuple(details))


def unequal(details: Sequence[str]) -> StopReason:
    """Return the reason to end a job whose ranks disagree on an argument that must be equal.

    Args:
        details: lines on which argument.

    """
    message = "--verify-spmd: the ranks have different values where all ranks need the same"
    return StopReason(message, exit_status.FAILED, tuple(details))


def incomparable(why: str) -> StopReason:
    """Return the reason to end a job whose programs were to be compared and cannot be."""
    message = f"--verify-spmd: not supported with this jax version: {why}"
    return StopReason(message, exit_status.FAILED)

"""Reasons to end a job other than a rank's failure: values."""

from __future__ import annotations

import errno
import signal
from collections.abc import Sequence

from mcjax_launch.kernel.wire import exit_status
from mcjax_launch.kernel.wire.value import Value
from mcjax_launch.wording import one_line

#: Why a rank can neither join nor go on.
NO_SERVICE = "process 0, and JAX's coordination service with it, has ended: let it end last"


class StopReason(Value):
    """A reason to end the job other than a rank's failure.

    Args:
        message: what happened.
        status: the exit status it leads to.
        details: further lines.
        final: starting the job again would be no use, or is not wanted.
        needs_stacks: the ranks' stacks are to be shown first.
        unread: nobody reads the output any more: one line on the end is enough.
        rank: the one to blame, if one is.
        told: a signal, as a scheduler sends it, has told the job to end.
        saved: the job is to be started again, as has been said.

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
        """Whether its message is all there is to say."""
        return self.unread or self.saved

    @property
    def ends_all(self) -> bool:
        """Whether --watch ends with the job."""
        return self.told or self.status in (exit_status.READER_GONE, exit_status.INTERNAL_ERROR)


#: What has caused a fault that the user wanted, in words.
REHEARSED = "--rehearse"


def interrupted(signum: int, by: str = "") -> StopReason:
    """The end of a job by a signal to the launcher.

    Args:
        signum: the signal.
        by: what has sent it, if that is known.

    """
    said = signal.Signals(signum).name + (f" ({by})" if by else "")
    return StopReason(f"stopped by {said}", exit_status.of_signal(signum), told=True)


def saved(changed: str) -> StopReason:
    """Return the reason to end a job whose files have been saved.

    Args:
        changed: which, in words.

    """
    status = exit_status.of_signal(signal.SIGTERM)
    return StopReason(f"{changed}: starting again", status, saved=True)


def quit_debugger(rank: str, where: str) -> StopReason:
    """The end of a job whose user has left the debugger of a rank, which stood there."""
    status = exit_status.of_signal(signal.SIGINT)
    return StopReason(f"stopped: the debugger of {rank} was quit at {where}", status)


def reader_gone(error: OSError | None) -> StopReason:
    """The end of a job whose output has lost its reader, or cannot be written.

    Args:
        error: what writing it led to, if anything.

    """
    if error is not None and error.errno not in (errno.EPIPE, errno.EIO):
        message = f"stdout cannot be written: {error.strerror}"
        return StopReason(message, exit_status.READER_GONE)
    return StopReason("stopped: the reader of stdout is gone", exit_status.READER_GONE, unread=True)


def host_lost(host: str, why: str) -> StopReason:
    """The end of a job one of whose hosts is gone, with its ranks."""
    return StopReason(one_line(f"host {host}: {why}"), exit_status.HOST_LOST, final=False)


def not_begun_again(why: str, status: int) -> StopReason:
    """The end of a job one of whose ranks cannot be started again."""
    return StopReason(one_line(why), status, final=status != exit_status.HOST_LOST)


def agent_stopped(host: str, why: str) -> StopReason:
    """The end of a job one of whose agents was stopped, by a scheduler as a rule."""
    return StopReason(f"host {host}: {why}", exit_status.HOST_LOST, told=True)


def internal_error(message: str) -> StopReason:
    """The end of a job by a bug of mcjax-launch."""
    return StopReason(message, exit_status.INTERNAL_ERROR)


def out_of_time(message: str, details: Sequence[str], *, final: bool) -> StopReason:
    """The end of a job that makes no progress, or not enough.

    Args:
        message: which limit was reached.
        details: where the ranks are.
        final: starting it again would be no use.

    """
    status = exit_status.TIMED_OUT
    return StopReason(message, status, tuple(details), final=final, needs_stacks=True)


def hopeless(rank: int | None, message: str, details: Sequence[str], *, final: bool) -> StopReason:
    """Return the reason to end a job that can never go on.

    Args:
        rank: to blame, if one is.
        message: what it did.
        details: what to do about it.
        final: starting it again would be no use.

    """
    return StopReason(message, exit_status.FAILED, tuple(details), final=final, rank=rank)


def unserved(rank: int, status: int) -> StopReason:
    """The end of a job one of whose ranks is started again when process 0 has gone.

    Args:
        rank: which one; it is in initialize().
        status: of its last life.

    """
    message = f"rank {rank}, started again, calls initialize(), but {NO_SERVICE}"
    return StopReason(message, status, final=False, rank=rank)


def diverged(details: Sequence[str]) -> StopReason:
    """The end of a job whose ranks run different programs.

    Args:
        details: which.

    """
    message = "--verify-spmd: the ranks run different programs"
    return StopReason(message, exit_status.FAILED, tuple(details))


def unequal(details: Sequence[str]) -> StopReason:
    """The end of a job whose ranks are about to run a program on data that should be the same.

    Args:
        details: which.

    """
    message = "--verify-spmd: the ranks have different values of what should be the same on all"
    return StopReason(message, exit_status.FAILED, tuple(details))


def incomparable(why: str) -> StopReason:
    """The end of a job whose programs should be compared and cannot be."""
    message = f"--verify-spmd: not supported with this jax version: {why}"
    return StopReason(message, exit_status.FAILED)

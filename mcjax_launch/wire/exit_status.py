"""The launcher's exit statuses, as documented, and what signals mean.

Besides these the launcher exits with a rank's own status, or with 128 + the signal that ended it.
"""

from __future__ import annotations

import errno
import signal

FAILED = 1
MOST_STATUS = 255
USAGE = 2
TIMED_OUT = 124
INTERNAL_ERROR = 125
NOT_EXECUTABLE = 126
NOT_FOUND = 127
READER_GONE = 141
HOST_LOST = 255


def compute_signal_status(signum: int) -> int:
    """Return the status that a shell reports for a process ended by this signal."""
    return 128 + signum


def compute_exit_status(status: int) -> int:
    """Return the status that a shell reports; in `status`, -N stands for death by signal N."""
    return status if status >= 0 else compute_signal_status(-status)


def compute_spawn_status(code: int) -> int:
    """Return the status that a shell reports if a command cannot start with errno `code`."""
    return NOT_FOUND if code in (errno.ENOENT, errno.ENOTDIR) else NOT_EXECUTABLE


# --- meanings of signals, in the launcher and in the agents ---

#: Signals that end the job.
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
#: Signals that are forwarded to every rank, and have no other effect.
FORWARDED = (signal.SIGUSR1, signal.SIGUSR2)
#: Signals that are reset to the default action in ranks, even if the parent process ignores them.
RESET_IN_RANKS = (
    signal.SIGINT,
    signal.SIGTERM,
    *FORWARDED,
    signal.SIGQUIT,
    signal.SIGPIPE,
    signal.SIGCHLD,
    signal.SIGXFSZ,
)


def get_signal_name(signum: int) -> str:
    """Return a signal's name, such as SIGTERM, or `signal 40` if it has none."""
    try:
        return signal.Signals(signum).name
    except ValueError:
        return f"signal {signum}"

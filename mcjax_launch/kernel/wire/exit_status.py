"""The launcher's exit statuses, as documented; a rank's own status and 128 + signal beside them."""

from __future__ import annotations

import errno

FAILED = 1
MOST_STATUS = 255
USAGE = 2
TIMED_OUT = 124
INTERNAL_ERROR = 125
NOT_EXECUTABLE = 126
NOT_FOUND = 127
READER_GONE = 141
HOST_LOST = 255


def of_signal(signum: int) -> int:
    """The status that a shell reports for a process ended by this signal."""
    return 128 + signum


def of_wait(status: int) -> int:
    """The status that a shell reports; `status` below 0 is minus the signal that ended it."""
    return status if status >= 0 else of_signal(-status)


def of_spawn_error(code: int) -> int:
    """The status that a shell reports for a command that it cannot start for this reason."""
    return NOT_FOUND if code in (errno.ENOENT, errno.ENOTDIR) else NOT_EXECUTABLE

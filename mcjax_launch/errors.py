"""Failures that are not our own bugs: what went wrong in one line, and the exit status."""

FAILED = 1
USAGE = 2
TIMED_OUT = 124
OWN_FAULT = 125
NOT_EXECUTABLE = 126
NOT_FOUND = 127
READER_GONE = 141
HOST_LOST = 255


class LaunchError(Exception):
    """The job cannot be run.

    Args:
        message: one line: what, where, and what to do.
        status: the launcher's exit status.

    """

    def __init__(self, message: str, status: int = USAGE) -> None:
        super().__init__(message)
        self.status = status

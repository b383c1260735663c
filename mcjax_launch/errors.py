"""Failures that are not our own bugs: what went wrong in one line, and the exit status."""

from mcjax_launch.protocol.exit_status import USAGE


class LaunchError(Exception):
    """The job cannot be run.

    Args:
        message: one line: what, where, and what to do.
        status: the launcher's exit status.

    """

    def __init__(self, message: str, status: int = USAGE) -> None:
        super().__init__(message)
        self.status = status

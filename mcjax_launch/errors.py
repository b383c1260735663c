"""LaunchError, and the file with the traceback of an internal error."""

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


def save_traceback(text: str) -> str:
    """Write the traceback of a bug to a file of its own; the file's path."""
    import tempfile

    with tempfile.NamedTemporaryFile("w", prefix="mcjax-", suffix=".txt", delete=False) as file:
        file.write(text)
    return file.name

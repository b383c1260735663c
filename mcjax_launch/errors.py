"""LaunchError, and the file for the traceback of an internal error."""

from collections.abc import Mapping

from mcjax_launch.wire.exit_status import USAGE
from mcjax_launch.wording import format_one_line


class LaunchError(Exception):
    """Error that prevents a job from being run.

    Args:
        message: one line: what, where, and what to do. Text that it quotes may be of any length and
            hold any characters.
        status: the launcher's exit status.

    """

    def __init__(self, message: str, status: int = USAGE) -> None:
        super().__init__(format_one_line(message))
        self.status = status


class HostsFailed(LaunchError):
    """Error: these hosts cannot be reached, or cannot run their ranks.

    Args:
        message, status: see LaunchError.
        reasons: the reason for each host, by its name.

    """

    def __init__(self, message: str, status: int, reasons: Mapping[str, str]) -> None:
        super().__init__(message, status)
        self.reasons = reasons


def save_traceback(text: str) -> str:
    """Write the traceback of a bug to a new temporary file; return its path."""
    import tempfile

    with tempfile.NamedTemporaryFile(prefix="mcjax-", suffix=".txt", delete=False) as file:
        file.write(text.encode("utf-8", "backslashreplace"))  # it may be a host's
    return file.name

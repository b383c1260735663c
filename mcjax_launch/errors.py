"""LaunchError, and the file with the traceback of an internal error."""

from mcjax_launch.kernel.wire.exit_status import USAGE
from mcjax_launch.wording import one_line


class LaunchError(Exception):
    """The job cannot be run.

    Args:
        message: one line: what, where, and what to do. What it quotes may be of any length, and
            hold anything.
        status: the launcher's exit status.

    """

    def __init__(self, message: str, status: int = USAGE) -> None:
        super().__init__(one_line(message))
        self.status = status


def save_traceback(text: str) -> str:
    """Write the traceback of a bug to a file of its own; the file's path."""
    import tempfile

    with tempfile.NamedTemporaryFile(prefix="mcjax-", suffix=".txt", delete=False) as file:
        file.write(text.encode("utf-8", "backslashreplace"))  # it may be a host's
    return file.name

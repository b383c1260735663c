"""The process above the agent: it waits, and finishes what a killed agent could not.

It also makes the job's private folder on this host, and removes it if the agent could not.
"""

from __future__ import annotations

import os
import signal
import stat

from ..protocol import exit_status
from ..protocol.signals import ENDING
from . import posix

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from typing import NoReturn

_PATIENCE_S = 5
_LAST_RESORT = "/tmp"
_LONGEST_SOCKET_FOLDER = 80  # a unix socket's path has 107 bytes in all


class NoFolder(Exception):
    """There is no place for the job's private folder on this host: a full or read-only disk.

    Args:
        place: where it was to be.
        error: what the system said.

    """

    def __init__(self, place: str, error: OSError) -> None:
        super().__init__(
            f"cannot write to {place}: {error.strerror}; set TMPDIR to another directory"
        )


def make_folder() -> str:
    """A new private folder (0700), in TMPDIR or /tmp.

    Raises:
        NoFolder: neither can be written.

    """
    base = os.path.abspath(os.environ.get("TMPDIR") or _LAST_RESORT)
    if len(os.fsencode(base)) <= _LONGEST_SOCKET_FOLDER and os.access(base, os.W_OK | os.X_OK):
        try:
            return _new_folder(base)
        except OSError:
            pass
    try:
        return _new_folder(_LAST_RESORT)
    except OSError as error:
        raise NoFolder(_LAST_RESORT, error) from None


def _new_folder(base: str) -> str:
    folder = os.path.join(base, f"mcjax-{os.urandom(6).hex()}")
    os.mkdir(folder, 0o700)
    return folder


def guard(agent: int, folder: str) -> NoReturn:
    """Wait for the agent; then end whatever is left below this process and take its exit status."""
    posix.adopt_orphans()
    for signum in ENDING:
        signal.signal(signum, lambda signum, frame: posix.signal_process(agent, signal.SIGTERM))
    status = 1
    signal.signal(signal.SIGALRM, lambda signum, frame: _leave(folder, status))
    # Orphans come to us only when the agent, the nearer subreaper, is gone.
    status = os.waitstatus_to_exitcode(os.waitpid(agent, 0)[1])
    signal.alarm(_PATIENCE_S)
    try:
        while True:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                for left in posix.descendants():
                    posix.signal_process(left, signal.SIGKILL)
                os.waitpid(-1, 0)  # its orphans may have become children of this process
    except ChildProcessError:
        _leave(folder, status)


def _leave(folder: str, status: int) -> NoReturn:
    remove(folder)
    os._exit(exit_status.of_wait(status))


def remove(path: str) -> None:
    """Remove a file or a whole folder; links are not followed, nothing missing matters."""
    try:
        if stat.S_ISDIR(os.lstat(path).st_mode):
            for name in os.listdir(path):
                remove(os.path.join(path, name))
            os.rmdir(path)
        else:
            os.unlink(path)
    except OSError:
        pass

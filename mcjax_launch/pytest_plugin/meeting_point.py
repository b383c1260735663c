"""Where the ranks of a group connect to the pytest that has started them."""

import contextlib
import os
import secrets
import shutil
import socket
import struct
import tempfile
from multiprocessing.connection import Connection
from pathlib import Path

from mcjax_launch.kernel.wire.system import LINUX

_LAST_RESORT = "/tmp"
# A unix socket's path has 107 bytes in all, and 103 on macOS; 29 of them are ours.
_LONGEST_SOCKET_FOLDER = 74
_CREDENTIALS = "3i"  # pid, uid and gid


class MeetingPoint:
    """A unix socket. On Linux it has a name and no file, so nothing is left of it if we are killed.

    Args:
        ranks: how many will connect.

    Attributes:
        address: for the ranks: the path of the socket, or @ and its name.

    """

    def __init__(self, ranks: int) -> None:
        self._folder = None if LINUX else make_folder()
        self._socket = socket.socket(socket.AF_UNIX)
        if self._folder is None:
            self.address = f"@mcjax-pytest-{secrets.token_hex(16)}"
            self._socket.bind(f"\0{self.address[1:]}")
        else:
            self.address = str(self._folder / "socket")
            self._socket.bind(self.address)
        self._socket.listen(ranks)

    def accept(self, seconds: float) -> Connection | None:
        """The next connection; None if there is none within so many seconds."""
        self._socket.settimeout(seconds)
        with contextlib.suppress(TimeoutError):
            accepted, _ = self._socket.accept()
            accepted.setblocking(True)
            if self._folder is not None or _is_ours(accepted):
                return Connection(accepted.detach())
            accepted.close()
        return None

    def close(self) -> None:
        """Nobody else will connect."""
        self._socket.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


def _is_ours(accepted: socket.socket) -> bool:
    """Whether this user's process is at the other end: any user can connect to a name."""
    size = struct.calcsize(_CREDENTIALS)
    credentials = accepted.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    _, uid, _ = struct.unpack(_CREDENTIALS, credentials)
    return bool(uid == os.getuid())


def make_folder() -> Path:
    """A private folder in which a socket can be made."""
    base = tempfile.gettempdir()
    folder = base if len(base) <= _LONGEST_SOCKET_FOLDER else _LAST_RESORT
    return Path(tempfile.mkdtemp(prefix="mcjax-pytest-", dir=folder))

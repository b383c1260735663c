"""Unix socket in a job's folder, also if its path is too long for a socket address."""

from __future__ import annotations

import os
import socket
import struct

from mcjax_launch.kernel.wire.system import LINUX

_NAME = "socket"
_MOST_BYTES = 100  # of an address


def listen(folder: str) -> socket.socket:
    """Return a socket that listens in the folder of a job.

    Raises:
        OSError: the file system has no sockets.

    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _Short(folder) as path:
            listener.bind(path)
            os.chmod(path, 0o600)
        listener.listen(16)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener


def connect(folder: str) -> socket.socket:
    """Return a connection to the launcher of a job.

    Raises:
        OSError: no launcher listens there, or it belongs to another user.

    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _Short(folder) as path:
            connection.connect(path)
        if not is_own(connection):
            raise PermissionError(0, "another user's process listens there", folder)
    except OSError:
        connection.close()
        raise
    return connection


def is_own(connection: socket.socket) -> bool:
    """Return whether the process at the other end belongs to this user."""
    if LINUX:
        size = struct.calcsize("3i")
        peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
        return bool(struct.unpack("3i", peer)[1] == os.geteuid())
    return True  # the folder has let nobody else in


class _Short:
    """Context that gives the socket's path, or a short path through an open descriptor."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._fd = -1
        self._before = -1

    def __enter__(self) -> str:
        path = os.path.join(self._folder, _NAME)
        if len(os.fsencode(path)) <= _MOST_BYTES:
            return path
        self._fd = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        if LINUX:
            return f"/proc/self/fd/{self._fd}/{_NAME}"
        self._before = os.open(os.curdir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        os.fchdir(self._fd)
        return _NAME

    def __exit__(self, *_: object) -> None:
        if self._before >= 0:
            os.fchdir(self._before)
            os.close(self._before)
        if self._fd >= 0:
            os.close(self._fd)

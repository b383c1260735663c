"""Unix socket in a job's folder, on Linux also if its path is too long for a socket address."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Iterator

from mcjax_launch.machine.system import LINUX

_NAME = "socket"
_MOST_BYTES = 100  # of an address


def listen(folder: str) -> socket.socket:
    """Return a socket that listens in the folder of a job.

    Raises:
        OSError: the file system has no sockets, or the path is too long for this system.

    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _short_path(folder) as path:
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
        with _short_path(folder) as path:
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


@contextlib.contextmanager
def _short_path(folder: str) -> Iterator[str]:
    """Yield the path of the socket in a folder; a long path is shortened on Linux."""
    path = os.path.join(folder, _NAME)
    if not LINUX or len(os.fsencode(path)) <= _MOST_BYTES:
        yield path
        return
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}/{_NAME}"
    finally:
        os.close(fd)

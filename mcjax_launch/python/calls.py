"""Way of calls to the launcher: a socket without a name, over which files are handed."""

from __future__ import annotations

import fcntl
import os
import socket
import tempfile
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mcjax_launch.errors import LaunchError
from mcjax_launch.features.session.messages import Submit
from mcjax_launch.machine.system import write_all
from mcjax_launch.wire.line import send

if TYPE_CHECKING:
    from mcjax_launch.features.session.messages import Buffer
    from mcjax_launch.python.packing import PackedCall
    from mcjax_launch.wire.codec import Message

_FIRST_FREE = 3  # after stdin, stdout and stderr


class CallChannel:
    """Socket pair with an end for the launcher. Only this process can make calls."""

    def __init__(self) -> None:
        ends = socket.socketpair()
        self._ours, self._theirs = (
            socket.socket(fileno=move_from_standard(end.detach())) for end in ends
        )

    def submit(
        self, call: PackedCall, number: int, ranks: Sequence[int] | None, *, is_last: bool = False
    ) -> None:
        """Hand a call to the launcher.

        Args:
            call: the call.
            number: number of the call.
            ranks: ranks that are to make it; None for all.
            is_last: True if the ranks end with it.

        Raises:
            LaunchError: there is no room for its arguments.

        """
        fd = _write_file(call.content)
        try:
            chosen = None if ranks is None else tuple(ranks)
            self.send(Submit(number, chosen, is_last), [fd])
        finally:
            os.close(fd)

    def send(self, message: Message, descriptors: Sequence[int] = ()) -> None:
        """Send a message; drop it if the launcher is gone."""
        send(self._ours, message, descriptors)

    @property
    def theirs(self) -> int:
        """Descriptor of the launcher's end."""
        return self._theirs.fileno()

    def close_theirs(self) -> None:
        """Close the launcher's end, because the launcher has its copy, or was not started."""
        self._theirs.close()

    def close(self) -> None:
        """Close this end, and the launcher's if it is here."""
        self._ours.close()
        self._theirs.close()


def move_from_standard(fd: int) -> int:
    """Return `fd`, or its copy from 3 on in its place: the launcher gets its own 0, 1 and 2.

    A program that has closed its standard descriptors gets these numbers for the next files.
    """
    if fd >= _FIRST_FREE:
        return fd
    moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _FIRST_FREE)
    os.close(fd)
    return moved


def _write_file(pieces: Sequence[Buffer]) -> int:
    """Write a call to a temporary file without a name; return its descriptor.

    Raises:
        LaunchError: the file cannot be written, as on a full disk.

    """
    try:
        with tempfile.TemporaryFile(buffering=0) as file:
            for piece in pieces:
                write_all(file, piece)
            return fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, _FIRST_FREE)
    except OSError as error:
        why = f"{error.strerror} in {tempfile.gettempdir()}; set TMPDIR to another directory"
        raise LaunchError(f"run: no room for the function's arguments: {why}") from None

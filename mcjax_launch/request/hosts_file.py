"""The text of a hosts file, of a pipe or of standard input, whatever these turn out to hold."""

import codecs
import errno
import os
import select

from mcjax_launch.errors import LaunchError

_MOST_BYTES = 16 << 20
# How long a named pipe may be without a writer.
_WRITER_S = 5


def read(path: str) -> str:
    """The text of a file, or of a pipe such as a shell's `<(command)`.

    Raises:
        LaunchError: it cannot be read, or is not text.

    """
    try:
        # Without a writer, a named pipe would hold up a plain open.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError as error:
        raise LaunchError(f"--hosts {path}: {error.strerror}") from None
    try:
        return text(fd, f"--hosts {path}")
    finally:
        os.close(fd)


def text(fd: int, origin: str) -> str:
    """The text that a descriptor leads to; bytes that are no UTF-8 are kept as surrogates.

    Raises:
        LaunchError: it cannot be read, or is not text; the message begins with `origin`.

    """
    data = bytearray()
    try:
        while piece := _next(fd, first=not data):
            data += piece
            if len(data) > _MOST_BYTES:
                raise LaunchError(f"{origin}: more than {_MOST_BYTES >> 20} MiB: not a hosts file")
    except OSError as error:
        raise LaunchError(f"{origin}: {error.strerror}") from None
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise LaunchError(f"{origin}: is encoded in UTF-16; save it as UTF-8")
    return data.decode("utf-8-sig", "surrogateescape")


def _next(fd: int, first: bool) -> bytes:
    """The next bytes; none at the end.

    Args:
        fd: to read from.
        first: nothing has come before.

    Raises:
        TimeoutError: it is a named pipe that nobody opens for writing.

    """
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    while True:
        try:
            data = os.read(fd, 1 << 16)
        except BlockingIOError:  # there is a writer, who takes his time
            poll.poll()
            continue
        # No bytes at first mean the end, or a named pipe without a writer: poll knows which.
        if not data and first and not poll.poll(_WRITER_S * 1000):
            raise TimeoutError(errno.ETIMEDOUT, "nobody writes to this pipe")
        if data or not first:
            return data
        first = False

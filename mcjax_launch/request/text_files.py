"""Text files that users name on the command line: hosts files, files of variables."""

import codecs
import errno
import os
import select

from mcjax_launch.errors import LaunchError

_MOST_BYTES = 16 << 20
# A named pipe may be without a writer for this long.
_WRITER_S = 5


def read_file(path: str, option: str) -> str:
    """Return the text of a file, or of a pipe such as a shell's `<(command)`.

    Args:
        path: path of the file.
        option: the option that names it, for messages.

    Raises:
        LaunchError: the file cannot be read, is too long, or is encoded in UTF-16.

    """
    try:
        # Without O_NONBLOCK, opening a named pipe would wait for a writer.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError as error:
        raise LaunchError(f"{option} {path}: {error.strerror}") from None
    try:
        return read_text(fd, f"{option} {path}")
    finally:
        os.close(fd)


def read_text(fd: int, origin: str) -> str:
    """Return the text read from a descriptor; bytes that are not UTF-8 become surrogates.

    Raises:
        LaunchError: reading fails, or the text is too long or in UTF-16; begins with `origin`.

    """
    data = bytearray()
    try:
        while piece := _read_next_bytes(fd, first=not data):
            data += piece
            if len(data) > _MOST_BYTES:
                raise LaunchError(f"{origin}: more than {_MOST_BYTES >> 20} MiB: another file?")
    except OSError as error:
        raise LaunchError(f"{origin}: {error.strerror}") from None
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise LaunchError(f"{origin}: is encoded in UTF-16; save it as UTF-8")
    return data.decode("utf-8-sig", "surrogateescape")


def _read_next_bytes(fd: int, first: bool) -> bytes:
    """Return the next bytes of a file or pipe; b"" at the end.

    Args:
        fd: descriptor to read from.
        first: True if no bytes have been read before.

    Raises:
        TimeoutError: no process has opened the named pipe for writing in 5 s.

    """
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    while True:
        try:
            data = os.read(fd, 1 << 16)
        except BlockingIOError:  # a writer that has written nothing yet
            poll.poll()
            continue
        # No bytes at first mean the end, or a named pipe without a writer: poll knows which.
        if not data and first and not poll.poll(_WRITER_S * 1000):
            raise TimeoutError(errno.ETIMEDOUT, "no process writes to this pipe")
        if data or not first:
            return data
        first = False

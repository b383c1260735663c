"""Output of a detached job: a file, and the one before it once it has become too long."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from mcjax_launch.detached.folders import open_private

#: Bytes of each of the two files.
MOST_BYTES = 32 << 20
_NAME, _EARLIER = "output", "output.1"
_MOST_READ = 1 << 18
_TAIL_BYTES = 1 << 16


class OutputFile:
    """Writer of the file; what a full disk does not take is dropped.

    Args:
        folder: folder of the job.

    Raises:
        OSError: the file cannot be written.

    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._fd = self._open()
        self._has_stderr = False

    def _open(self) -> int:
        return open_private(self._folder, _NAME, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(self, text: bytes) -> None:
        """Append text; begin a new file if this one is too long."""
        with contextlib.suppress(OSError):
            if os.fstat(self._fd).st_size > MOST_BYTES:
                os.replace(os.path.join(self._folder, _NAME), os.path.join(self._folder, _EARLIER))
                os.close(self._fd)
                self._fd = self._open()
                if self._has_stderr:
                    self.redirect_stderr()
            os.write(self._fd, text)

    def redirect_stderr(self) -> None:
        """Append this process's stderr, too, to the file from now on."""
        self._has_stderr = True
        os.dup2(self._fd, 2)


def read(folder: str, *, whole: bool) -> Iterator[bytes]:
    """Yield what was written, at first all or its end, then what is new; b"" if nothing is new."""
    fd = open_private(folder, _NAME, os.O_RDONLY)
    try:
        if whole:
            with contextlib.suppress(OSError), open(os.path.join(folder, _EARLIER), "rb") as before:
                yield from iter(lambda: before.read(_MOST_READ), b"")
        else:
            size = os.fstat(fd).st_size
            os.lseek(fd, max(0, size - _TAIL_BYTES), os.SEEK_SET)
            if size > _TAIL_BYTES:
                yield os.read(fd, _TAIL_BYTES).partition(b"\n")[2]
        while True:
            if data := os.read(fd, _MOST_READ):
                yield data
            elif os.fstat(fd).st_ino != os.stat(os.path.join(folder, _NAME)).st_ino:
                os.close(fd)
                fd = open_private(folder, _NAME, os.O_RDONLY)
            else:
                yield b""
    finally:
        os.close(fd)


def read_last_line(folder: str) -> str:
    """Return the last line that a rank or the launcher has printed; "" if there is none."""
    try:
        text = next(read(folder, whole=False))
    except OSError:
        return ""
    texts = (line.decode("utf-8", "replace").strip() for line in reversed(text.split(b"\n")))
    return next(filter(None, texts), "")

"""Output of a detached job: files with numbers, of which the last two are kept."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator

from mcjax_launch.detached.folders import open_private

#: Bytes of each of the two files.
MOST_BYTES = 32 << 20
_PREFIX = "output."
_MOST_READ = 1 << 18
_TAIL_BYTES = 1 << 16
_GAP = b"mcjax-launch: earlier output is not kept; --log-dir keeps all of it\n"


class OutputFile:
    """Writer of the files; what a full disk does not take is dropped.

    Args:
        folder: folder of the job.

    Raises:
        OSError: the file cannot be written.

    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._number = 0
        self._fd = self._open(0)
        self._has_stderr = False

    def _open(self, number: int) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        return open_private(self._folder, f"{_PREFIX}{number}", flags)

    def write(self, text: bytes) -> None:
        """Append text; begin a new file if this one is too long."""
        with contextlib.suppress(OSError):
            if os.fstat(self._fd).st_size > MOST_BYTES:
                self._begin_file()
            os.write(self._fd, text)

    def _begin_file(self) -> None:
        """Begin the next file of output; keep the present file, and remove older ones."""
        before, self._fd = self._fd, self._open(self._number + 1)
        os.close(before)
        self._number += 1
        if self._has_stderr:
            self.redirect_stderr()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(self._folder, f"{_PREFIX}{self._number - 2}"))

    def redirect_stderr(self) -> None:
        """Append this process's stderr, too, to the file from now on."""
        self._has_stderr = True
        os.dup2(self._fd, 2)


def read(folder: str, *, whole: bool) -> Iterator[bytes]:
    """Yield what was written, at first all or its end, then what is new; b"" if nothing is new.

    Raises:
        OSError: there is no output, or it cannot be read.

    """
    number, fd = _open_after(-1 if whole else max(_list_numbers(folder), default=0) - 1, folder)
    try:
        if whole and number:
            yield _GAP
        if not whole and (size := os.fstat(fd).st_size) > _TAIL_BYTES:
            os.lseek(fd, size - _TAIL_BYTES, os.SEEK_SET)
            yield os.read(fd, _TAIL_BYTES).partition(b"\n")[2]
        while True:
            is_complete = max(_list_numbers(folder), default=number) > number
            if data := os.read(fd, _MOST_READ):
                yield data
            elif is_complete:  # and was so before the read
                os.close(fd)
                before = number
                number, fd = _open_after(number, folder)
                if number > before + 1:  # the job prints faster than this is read
                    yield _GAP
            else:
                yield b""
    finally:
        os.close(fd)


def _open_after(number: int, folder: str) -> tuple[int, int]:
    """Open the first file that is kept after file `number`; return its number and descriptor.

    Raises:
        OSError: there is none, or it cannot be read.

    """
    while later := [kept for kept in _list_numbers(folder) if kept > number]:
        with contextlib.suppress(FileNotFoundError):  # removed meanwhile
            return min(later), open_private(folder, f"{_PREFIX}{min(later)}", os.O_RDONLY)
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), folder)


def _list_numbers(folder: str) -> list[int]:
    names = os.listdir(folder)
    return [int(name.removeprefix(_PREFIX)) for name in names if name.startswith(_PREFIX)]


def read_last_line(folder: str) -> str:
    """Return the last line that a rank or the launcher has printed; "" if there is none."""
    try:
        text = next(read(folder, whole=False))
    except OSError:
        return ""
    texts = (line.decode("utf-8", "replace").strip() for line in reversed(text.split(b"\n")))
    return next(filter(None, texts), "")

"""Output of a detached job: one file, of which the end is kept."""

from __future__ import annotations

import os
from collections.abc import Iterator

from mcjax_launch.features.detached.folders import open_private

#: Bytes that are kept at least; at most three times as many are on the disk.
MOST_BYTES = 32 << 20
_NAME = "output"
_MOST_READ = 1 << 18
_TAIL_BYTES = 1 << 16
_GAP = b"mcjax-launch: earlier output is not kept; --log-dir keeps all of it\n"
# fallocate's flags KEEP_SIZE and PUNCH_HOLE, and a multiple of the size of a file system's blocks.
_PUNCH, _BLOCK = 3, 1 << 16


class OutputFile:
    """Writer of the file; what a full disk does not take is dropped, and counted.

    Args:
        folder: folder of the job.

    Raises:
        OSError: the file cannot be written.

    """

    def __init__(self, folder: str) -> None:
        self._fd = open_private(folder, _NAME, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._kept_from = 0
        self._dropped = self._unsaid = 0  # bytes; those about which the file says nothing yet
        self._why = ""

    def write(self, text: bytes) -> None:
        """Append text; free the room of what was printed long before."""
        rest = text
        try:
            if self._unsaid:
                rest = f"\nmcjax-launch: {self._describe(self._unsaid)}\n".encode() + text
            while rest:
                rest = rest[os.write(self._fd, rest) :]
                self._unsaid = 0
        except OSError as error:
            self._why = str(error.strerror)
            lost = min(len(rest), len(text))
            self._dropped += lost
            self._unsaid += lost
        size = os.fstat(self._fd).st_size
        if size - self._kept_from > 2 * MOST_BYTES + _BLOCK:
            self._free((size - MOST_BYTES) // _BLOCK * _BLOCK)

    def _free(self, end: int) -> None:
        """Free the room of the file up to `end`: all of it if the file system makes no holes."""
        import ctypes

        fallocate = getattr(ctypes.CDLL(None), "fallocate", None)
        size = ctypes.c_longlong
        if fallocate is not None and not fallocate(self._fd, _PUNCH, size(0), size(end)):
            self._kept_from = end
        else:
            os.ftruncate(self._fd, 0)
            self.write(_GAP)

    def describe_dropped(self) -> str:
        """Return how much of the output was not written, and why; "" if nothing was dropped."""
        return self._describe(self._dropped) if self._dropped else ""

    def _describe(self, size: int) -> str:
        return f"{size:,} bytes of its output are not kept: {self._why}"

    def redirect_stderr(self) -> None:
        """Append this process's stderr, too, to the file from now on."""
        os.dup2(self._fd, 2)


def read(folder: str, *, whole: bool) -> Iterator[bytes]:
    """Yield what was written, at first all or its end, then what is new; b"" if nothing is new.

    Raises:
        OSError: there is no output, or it cannot be read.

    """
    fd = open_private(folder, _NAME, os.O_RDONLY)
    try:
        at = 0 if whole else max(0, os.fstat(fd).st_size - _TAIL_BYTES)
        is_inside = at > 0  # probably in a line
        while True:
            kept = _find_kept(fd, at)
            if kept > at:
                yield _GAP
                is_inside = True
            at = kept
            data = os.pread(fd, _MOST_READ, at)
            at += len(data)
            if is_inside and data:
                data, is_inside = data.partition(b"\n")[2], False
            yield data
    finally:
        os.close(fd)


def _find_kept(fd: int, at: int) -> int:
    """Return the first offset from `at` on that is kept; 0 if the file has begun anew."""
    if os.fstat(fd).st_size < at:
        return 0
    try:
        return os.lseek(fd, at, os.SEEK_DATA)
    except (OSError, AttributeError):  # the file's end, or a system that knows no holes
        return at


def read_last_line(folder: str) -> str:
    """Return the last line that a rank or the launcher has printed; "" if there is none."""
    try:
        text = next(read(folder, whole=False))
    except OSError:
        return ""
    texts = (line.decode("utf-8", "replace").strip() for line in reversed(text.split(b"\n")))
    return next(filter(None, texts), "")

"""Output of a detached job: one file, of which the end is kept."""

from __future__ import annotations

import os
from collections.abc import Iterator

#: Bytes that are kept at least; at most three times as many are on a disk that knows holes.
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
        OSError: the file cannot be made.

    """

    def __init__(self, folder: str) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._fd = os.open(os.path.join(folder, _NAME), flags, 0o600)
        self._kept_from = self._dropped = 0
        self._why: str | None = ""

    def write(self, text: bytes) -> None:
        """Append text; free the room of what was printed long before."""
        try:
            while text:
                text = text[os.write(self._fd, text) :]
        except OSError as error:
            self._dropped += len(text)
            self._why = error.strerror
        size = os.fstat(self._fd).st_size
        if size - self._kept_from > 2 * MOST_BYTES + _BLOCK:
            self._kept_from = (size - MOST_BYTES) // _BLOCK * _BLOCK
            _make_hole(self._fd, self._kept_from)

    def describe_dropped(self) -> str:
        """Return how much of the output was not written, and why; "" if nothing was dropped."""
        if not self._dropped:
            return ""
        return f"{self._dropped:,} bytes of its output are not kept: {self._why}"

    def redirect_stderr(self) -> None:
        """Append this process's stderr, too, to the file from now on."""
        os.dup2(self._fd, 2)


def _make_hole(fd: int, end: int) -> None:
    """Free the room of a file up to `end`; a file system without holes keeps all of it."""
    import ctypes

    if fallocate := getattr(ctypes.CDLL(None), "fallocate", None):
        fallocate(fd, _PUNCH, ctypes.c_longlong(0), ctypes.c_longlong(end))


def read(folder: str, *, whole: bool) -> Iterator[bytes]:
    """Yield what was written, at first all or its end, then what is new; b"" if nothing is new.

    Raises:
        OSError: there is no output, or it cannot be read.

    """
    with open(os.path.join(folder, _NAME), "rb", buffering=0) as file:
        at = 0 if whole else max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES)
        is_inside = at > 0  # probably in a line
        while True:
            if (kept := _find_kept(file.fileno(), at)) > at:
                at, is_inside = kept, True
                yield _GAP
            data = os.pread(file.fileno(), _MOST_READ, at)
            at += len(data)
            if is_inside and data:
                data, is_inside = data.partition(b"\n")[2], False
            yield data


def _find_kept(fd: int, at: int) -> int:
    """Return the first offset from `at` on that is kept."""
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

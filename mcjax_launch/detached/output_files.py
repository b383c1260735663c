"""Output of a detached job in numbered files of bounded size; the oldest files are removed."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence

from mcjax_launch.detached.folders import open_private

#: All files of a job hold no more than so many bytes,
MOST_BYTES = 64 << 20
# in so many files.
_FILES = 8
_PREFIX = "output."
# A full disk is tried again when so many more bytes are to be written.
_RETRY_BYTES = 1 << 16
_MOST_READ = 1 << 18
_STDERR = 2


def list_file_numbers(folder: str) -> list[int]:
    """Return the numbers of the output files in a folder, the oldest first; [] on an error."""
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    return sorted(int(name.removeprefix(_PREFIX)) for name in names if _is_output(name))


def _is_output(name: str) -> bool:
    return name.startswith(_PREFIX) and name.removeprefix(_PREFIX).isdecimal()


def get_file_path(folder: str, number: int) -> str:
    """Return the path of an output file."""
    return os.path.join(folder, f"{_PREFIX}{number}")


def open_to_read(folder: str, number: int) -> int:
    """Open an output file for reading; return its descriptor.

    Raises:
        OSError: the file does not exist or cannot be opened.

    """
    return open_private(folder, f"{_PREFIX}{number}", os.O_RDONLY)


class OutputFiles:
    """Writer of output files; removes the oldest file when the files become too big.

    Args:
        folder: folder of the job.
        on_full: called with True when the disk is full, with False when writing works again.
        most_bytes: maximum size of all files together.

    Attributes:
        lost: number of bytes that were dropped because the disk was full.
        on_written: called after each successful write.

    """

    def __init__(
        self, folder: str, on_full: Callable[[bool], object], most_bytes: int = MOST_BYTES
    ) -> None:
        self.lost = 0
        self.on_written: Callable[[], object] = lambda: None
        self._folder, self._on_full = folder, on_full
        self._most_bytes = most_bytes // _FILES
        self._number, self._fd = 0, -1
        self._has_stderr = False
        self._ends_line = True
        self._is_full = False
        self._tried_at = 0  # so many bytes were lost at the last try on a full disk

    def write(self, pieces: Sequence[bytes | memoryview]) -> None:
        """Write pieces of output at once; drop them if the disk is full."""
        text = b"".join(pieces)
        if self._is_full and self.lost - self._tried_at < _RETRY_BYTES and len(text) < _RETRY_BYTES:
            self.lost += len(text)
            return
        if self._fd < 0 or self._is_over_limit(len(text)):
            self._begin_next_file()
        if self._append(self._make_gap_line() + text):
            self._ends_line = text.endswith(b"\n") if text else self._ends_line
            self._say_full(False)
            self.on_written()
        else:
            self.lost += len(text)
            self._tried_at = self.lost
            self._say_full(True)

    def _is_over_limit(self, more: int) -> bool:
        """Return whether the next file is due, which begins with a line if possible."""
        size = os.fstat(self._fd).st_size
        # A line that is longer than a file would never fit: a file of its own is as long.
        is_over = size > 0 and size + more > self._most_bytes
        return is_over and (self._ends_line or size > 2 * self._most_bytes)

    def _make_gap_line(self) -> bytes:
        """Return a line that says what a full disk has swallowed before; b"" if nothing."""
        if not self._is_full:
            return b""
        begin = b"" if self._ends_line else b"\n"
        lost = b"%d bytes of output are not kept\n" % self.lost
        return begin + b"mcjax-launch: the disk was full: " + lost

    def _say_full(self, is_full: bool) -> None:
        if self._is_full != is_full:
            self._is_full = is_full
            self._on_full(is_full)

    def redirect_stderr(self) -> None:
        """Append this process's stderr, too, to the files from now on."""
        self._has_stderr = True
        if self._fd >= 0:
            os.dup2(self._fd, _STDERR)

    def _begin_next_file(self) -> None:
        """Begin the next file, and remove the oldest files."""
        try:
            name = f"{_PREFIX}{self._number}"
            fd = open_private(self._folder, name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        except OSError:
            return  # the file that is open goes on to grow
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = fd
        if self._has_stderr:
            self.redirect_stderr()
        self._number += 1
        self._remove_oldest(_FILES)

    def _remove_oldest(self, most: int) -> bool:
        """Remove all but the newest `most` files; return whether any file was removed."""
        old = list_file_numbers(self._folder)[:-most]
        for number in old:
            with contextlib.suppress(OSError):  # the user has removed the folder
                os.unlink(get_file_path(self._folder, number))
        return bool(old)

    def _append(self, text: bytes) -> bool:
        """Append all of the text or nothing; on a full disk, remove old files; return success."""
        if self._fd < 0:
            return False
        while True:
            try:
                written = os.write(self._fd, text)
            except OSError:
                written = 0
            if written == len(text):
                return True
            if written:
                os.ftruncate(self._fd, os.fstat(self._fd).st_size - written)
            if not self._remove_oldest(max(1, len(list_file_numbers(self._folder)) - 1)):
                return False

    def close(self) -> None:
        """Close the current file; call `write` no more."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class OutputReader:
    """Reader of a job's output from all of its files, up to the last byte written.

    Args:
        folder: folder of the job.

    Attributes:
        skipped: True if files were removed before they could be read.

    """

    def __init__(self, folder: str) -> None:
        self.skipped = False
        self._folder = folder
        self._number, self._fd = -1, -1

    def skip_to_tail(self, least: int) -> None:
        """Start at a file such that at least `least` bytes follow, else at the first file."""
        for number in reversed(list_file_numbers(self._folder)):
            if least <= 0 or not self._open(number):
                return
            least -= os.fstat(self._fd).st_size

    def read(self) -> bytes:
        """Return some of what was written since the last read; b"" if there is nothing."""
        if self._fd < 0 and not self._open_next():
            return b""
        while not (data := os.read(self._fd, _MOST_READ)):
            if not self._open_next():
                return b""
        return data

    def _open_next(self) -> bool:
        """Continue with the next file; return False if there is none."""
        later = [number for number in list_file_numbers(self._folder) if number > self._number]
        if not later:
            return False
        if self._fd >= 0:
            # What was written to this file after the last read, and before the next was begun.
            if self._has_more():
                return True
            self.skipped |= later[0] > self._number + 1
        return self._open(later[0])

    def _has_more(self) -> bool:
        return os.fstat(self._fd).st_size > os.lseek(self._fd, 0, os.SEEK_CUR)

    def _open(self, number: int) -> bool:
        try:
            fd = open_to_read(self._folder, number)
        except OSError:  # removed meanwhile
            return False
        self.close()
        self._fd, self._number = fd, number
        return True

    def close(self) -> None:
        """Close the current file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

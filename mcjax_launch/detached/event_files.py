"""Events of a detached job in numbered files of bounded size; the oldest files are removed."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence

from mcjax_launch.detached.folders import open_private

#: All files of a job hold no more than so many bytes,
MOST_BYTES = 64 << 20
# in so many files.
_FILES = 8
_PREFIX = "events."
# A full disk is tried again when so many more bytes are to be written.
_RETRY_BYTES = 1 << 16
_MOST_READ = 1 << 18


def list_file_numbers(folder: str) -> list[int]:
    """Return the numbers of the event files in a folder, the oldest first; [] on an error."""
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    return sorted(int(name.removeprefix(_PREFIX)) for name in names if _is_events(name))


def _is_events(name: str) -> bool:
    return name.startswith(_PREFIX) and name.removeprefix(_PREFIX).isdecimal()


def get_file_path(folder: str, number: int) -> str:
    """Return the path of an event file."""
    return os.path.join(folder, f"{_PREFIX}{number}")


def open_to_read(folder: str, number: int) -> int:
    """Open an event file for reading; return its descriptor.

    Raises:
        OSError: the file does not exist or cannot be opened.

    """
    return open_private(folder, f"{_PREFIX}{number}", os.O_RDONLY)


class EventFiles:
    """Writer of event files; removes the oldest file when the files become too big.

    Each file begins with lines that repeat what a reader needs from earlier files.

    Args:
        folder: folder of the job.
        on_full: called with True when the disk is full, with False when writing works again.
        most_bytes: maximum size of all files together.

    Attributes:
        head: lines with which each file begins.
        lost: number of bytes that were dropped because the disk was full.
        on_written: called after each successful write.

    """

    def __init__(
        self, folder: str, on_full: Callable[[bool], object], most_bytes: int = MOST_BYTES
    ) -> None:
        self.head = b""
        self.lost = 0
        self.on_written: Callable[[], object] = lambda: None
        self._folder, self._on_full = folder, on_full
        self._most_bytes = most_bytes // _FILES
        self._number, self._size, self._fd = 0, 0, -1
        self._is_full = False
        self._tried_at = 0  # so many bytes were lost at the last try on a full disk

    def write(self, pieces: Sequence[bytes | memoryview]) -> None:
        """Write whole lines at once; drop them if the disk is full."""
        text = b"".join(pieces)
        if self._is_full and self.lost - self._tried_at < _RETRY_BYTES and len(text) < _RETRY_BYTES:
            self.lost += len(text)
            return
        # Lines that are longer than a file would never fit: a file of their own is as long.
        if self._fd < 0 or (self._size > len(self.head) and self._is_over_limit(len(text))):
            self._begin_next_file()
        if self._append(text):
            self._say_full(False)
            self.on_written()
        else:
            self.lost += len(text)
            self._tried_at = self.lost
            self._say_full(True)

    def _is_over_limit(self, more: int) -> bool:
        return self._size + more > self._most_bytes

    def _say_full(self, is_full: bool) -> None:
        if self._is_full != is_full:
            self._is_full = is_full
            self._on_full(is_full)

    def _begin_next_file(self) -> None:
        """Begin the next file, and remove the oldest files."""
        try:
            name = f"{_PREFIX}{self._number}"
            fd = open_private(self._folder, name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        except OSError:
            return  # the file that is open goes on to grow
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._size = fd, 0
        self._number += 1
        self._remove_oldest(_FILES)
        self._append(self.head)

    def _remove_oldest(self, most: int) -> bool:
        """Remove all but the newest `most` files; return whether any file was removed."""
        old = list_file_numbers(self._folder)[:-most]
        for number in old:
            with contextlib.suppress(OSError):  # the user has removed the folder
                os.unlink(get_file_path(self._folder, number))
        return bool(old)

    def _append(self, text: bytes) -> bool:
        """Append whole lines or nothing; on a full disk, remove old files; return success."""
        if self._fd < 0:
            return False
        while True:
            try:
                written = os.write(self._fd, text)
            except OSError:
                written = 0
            if written == len(text):
                self._size += written
                return True
            if written:
                os.ftruncate(self._fd, self._size)
            if not self._remove_oldest(max(1, len(list_file_numbers(self._folder)) - 1)):
                return False

    def close(self) -> None:
        """Close the current file; call `write` no more."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class EventReader:
    """Reader of a job's events from all of its files, up to the last line written.

    Args:
        folder: folder of the job.

    Attributes:
        skipped: True if files were removed before they could be read.

    """

    def __init__(self, folder: str) -> None:
        self.skipped = False
        self._folder = folder
        self._number, self._fd = -1, -1
        self._rest = b""

    def skip_to_tail(self, least: int) -> None:
        """Start at a file such that at least `least` bytes follow, else at the first file."""
        for number in reversed(list_file_numbers(self._folder)):
            if least <= 0 or not self._open(number):
                return
            least -= os.fstat(self._fd).st_size

    def read(self) -> Iterator[bytes]:
        """Yield the lines written since the last read, without newlines."""
        while lines := self.read_some():
            yield from lines

    def read_some(self) -> list[bytes]:
        """Return some of the lines written since the last read; [] if there are none."""
        if self._fd < 0 and not self._open_next():
            return []
        while True:
            data = os.read(self._fd, _MOST_READ)
            if data:
                *lines, self._rest = (self._rest + data).split(b"\n")
                if lines:
                    return lines
            elif not self._open_next():
                return []

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
        self._fd, self._number, self._rest = fd, number, b""
        return True

    def close(self) -> None:
        """Close the current file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

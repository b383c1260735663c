"""Store of compiled programs as files in a folder; the least recently used files are removed."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import struct
import time
import zlib

from ....machine import own_paths
from ....machine.system import NEW_FILE, write_all
from ....wire.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_SUFFIX, _UNFINISHED = ".xla", ".part"
# Header of a file: a mark with the format's version, a checksum, the seconds.
_HEADER = struct.Struct("<8sLd")
_MARK = b"mcjax-1\n"
# An unfinished file that is older belongs to a job that was killed.
_LONGEST_WRITE_S = 3600.0
# A full folder is emptied to this share of its size, so that it is rarely searched.
_KEPT = 0.9
# A process searches the folder again when it has written this share of its size.
_UNSEEN = 0.01


class Executable(Value):
    """Serialised executable, and how many seconds its compilation took."""

    data: bytes
    seconds: float


class Store:
    """Folder of compiled programs that several processes, jobs and hosts may use at once.

    A file gets its name when it is complete, and holds a checksum, so readers never use part of it.
    Files of other users are not read, unless these users share the folder.

    Args:
        folder: existing folder to which only trusted users can write.
        size: maximum size of all programs together, in bytes.
        least_s: seconds that a compilation must have taken for the program to be kept.

    """

    def __init__(self, folder: str, size: int, least_s: float = 0.0) -> None:
        self._folder = folder
        self._size = size
        self._least_s = least_s
        self._unseen = size  # bytes written since the folder was last searched
        try:
            self._status: os.stat_result | None = os.stat(folder)
        except OSError:
            self._status = None

    def read(self, key: str) -> Executable | None:
        """Return a program; None if it is missing."""
        name = key + _SUFFIX
        try:
            with self._open_folder() as folder, open(_open_to_read(name, folder), "rb") as file:
                if not self._is_trusted(os.fstat(file.fileno())):
                    return None
                found = _unpack(file.read())
                with contextlib.suppress(OSError):
                    os.utime(file.fileno()) if found else os.unlink(name, dir_fd=folder)
                return found
        except OSError:
            return None

    def write(self, key: str, compiled: Executable) -> bool:
        """Keep a program unless it is too large or compiled quickly; return whether it is kept.

        Raises:
            OSError: the folder is full or read-only.

        """
        if len(compiled.data) > self._size * _KEPT or compiled.seconds < self._least_s:
            return False
        content = _pack(compiled)
        unfinished = f"{os.urandom(8).hex()}{_UNFINISHED}"
        with self._open_folder() as folder:
            fd = os.open(unfinished, NEW_FILE, 0o664, dir_fd=folder)
            try:
                with open(fd, "wb", buffering=0) as file:
                    write_all(file, content)
                os.replace(unfinished, key + _SUFFIX, src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(unfinished, dir_fd=folder)
                raise
            self._unseen += len(content)
            if self._unseen > self._size * _UNSEEN:
                self._unseen = 0
                self._remove_oldest(folder)
        return True

    def has(self, key: str) -> bool:
        """Return whether a program that `read` can return is in the folder."""
        with contextlib.suppress(OSError), self._open_folder() as folder:
            found = os.stat(key + _SUFFIX, dir_fd=folder, follow_symlinks=False)
            return self._is_trusted(found)
        return False

    def remove(self, key: str) -> None:
        """Remove a program that cannot be loaded."""
        with contextlib.suppress(OSError), self._open_folder() as folder:
            os.unlink(key + _SUFFIX, dir_fd=folder)

    @contextlib.contextmanager
    def _open_folder(self) -> Iterator[int]:
        """Yield a descriptor of the folder.

        Raises:
            OSError: the folder is gone, or another folder has taken its place.

        """
        fd = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if self._status is None or not os.path.samestat(os.fstat(fd), self._status):
                raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
            yield fd
        finally:
            os.close(fd)

    def _is_trusted(self, file: os.stat_result) -> bool:
        """Return whether an open file is a program that only trusted users can have written."""
        folder = self._status
        if folder is None or not stat.S_ISREG(file.st_mode) or file.st_mode & stat.S_IWOTH:
            return False
        is_own = file.st_uid in (os.geteuid(), 0, folder.st_uid)
        is_small = file.st_size <= self._size + _HEADER.size
        return is_small and (is_own or own_paths.is_our_groups(folder))

    def _remove_oldest(self, folder: int) -> None:
        """Remove the least recently used programs until the rest is well below the size."""
        found, now = [], time.time()
        for name in os.listdir(folder):
            with contextlib.suppress(OSError):
                status = os.stat(name, dir_fd=folder, follow_symlinks=False)
                if name.endswith(_SUFFIX):
                    found.append((status.st_mtime, status.st_size, name))
                elif name.endswith(_UNFINISHED) and now - status.st_mtime > _LONGEST_WRITE_S:
                    os.unlink(name, dir_fd=folder)
        total = sum(size for _, size, _ in found)
        if total <= self._size:
            return
        for _, size, name in sorted(found):
            if total <= self._size * _KEPT:
                break
            total -= size
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=folder)


def _open_to_read(name: str, folder: int) -> int:
    """Open a file in a folder, but no symbolic link; do not wait for the writer of a FIFO."""
    how = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    return os.open(name, how, dir_fd=folder)


def _pack(compiled: Executable) -> bytes:
    return _HEADER.pack(_MARK, zlib.crc32(compiled.data), compiled.seconds) + compiled.data


def _unpack(content: bytes) -> Executable | None:
    """Return the program in a file; None if the file has another format, or is damaged."""
    if len(content) < _HEADER.size:
        return None
    mark, checksum, seconds = _HEADER.unpack_from(content)
    data = content[_HEADER.size :]
    return Executable(data, seconds) if mark == _MARK and zlib.crc32(data) == checksum else None

"""Store of compiled programs as files in a folder; the least recently used files are removed."""

from __future__ import annotations

import contextlib
import os
import struct
import time
import zlib

from ....kernel.wire.value import Value

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

    def read(self, key: str) -> Executable | None:
        """Return a program; None if it is missing."""
        path = self._get_path(key)
        try:
            with open(path, "rb") as file:
                content = file.read()
        except OSError:
            return None
        found = _unpack(content)
        with contextlib.suppress(OSError):
            os.utime(path) if found else os.unlink(path)
        return found

    def write(self, key: str, compiled: Executable) -> bool:
        """Keep a program unless it is too large or compiled quickly; return whether it is kept.

        Raises:
            OSError: the folder is full or read-only.

        """
        if len(compiled.data) > self._size * _KEPT or compiled.seconds < self._least_s:
            return False
        content = _pack(compiled)
        unfinished = os.path.join(self._folder, f"{os.urandom(8).hex()}{_UNFINISHED}")
        fd = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o664)
        try:
            with open(fd, "wb", buffering=0) as file:
                rest = memoryview(content)
                while rest:
                    rest = rest[file.write(rest) :]
            os.replace(unfinished, self._get_path(key))
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(unfinished)
            raise
        self._unseen += len(content)
        if self._unseen > self._size * _UNSEEN:
            self._unseen = 0
            self._remove_oldest()
        return True

    def has(self, key: str) -> bool:
        """Return whether a program is in the folder."""
        return os.path.exists(self._get_path(key))

    def remove(self, key: str) -> None:
        """Remove a program that cannot be loaded."""
        with contextlib.suppress(OSError):
            os.unlink(self._get_path(key))

    def _get_path(self, key: str) -> str:
        return os.path.join(self._folder, key + _SUFFIX)

    def _remove_oldest(self) -> None:
        """Remove the least recently used programs until the rest is well below the size."""
        found, now = [], time.time()
        for entry in os.scandir(self._folder):
            with contextlib.suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                if entry.name.endswith(_SUFFIX):
                    found.append((status.st_mtime, status.st_size, entry.path))
                elif entry.name.endswith(_UNFINISHED) and now - status.st_mtime > _LONGEST_WRITE_S:
                    os.unlink(entry.path)
        total = sum(size for _, size, _ in found)
        if total <= self._size:
            return
        for _, size, path in sorted(found):
            if total <= self._size * _KEPT:
                break
            total -= size
            with contextlib.suppress(OSError):
                os.unlink(path)


def _pack(compiled: Executable) -> bytes:
    return _HEADER.pack(_MARK, zlib.crc32(compiled.data), compiled.seconds) + compiled.data


def _unpack(content: bytes) -> Executable | None:
    """Return the program in a file; None if the file has another format, or is damaged."""
    if len(content) < _HEADER.size:
        return None
    mark, checksum, seconds = _HEADER.unpack_from(content)
    data = content[_HEADER.size :]
    return Executable(data, seconds) if mark == _MARK and zlib.crc32(data) == checksum else None

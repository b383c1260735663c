"""Contents of files that a host keeps from one job to the next, by their checksums.

They are in `$XDG_CACHE_HOME/mcjax-launch/kept` or `~/.cache/mcjax-launch/kept`, which only this
user can open. Several agents may use the folder at once, on several hosts if it is on a file system
that these share: a file appears there whole, under its checksum, and never changes. What is read is
compared with its checksum, so a damaged file counts as missing.
"""

from __future__ import annotations

import contextlib
import os
import time

from ..machine import own_paths
from ..machine.system import NEW_FILE, write_all
from ..wire import checksum

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Mapping
    from io import BytesIO, FileIO, RawIOBase

#: Limits on what is kept: bytes of all files, and days without use.
MOST_BYTES, MOST_DAYS = 1 << 30, 30
# Bytes of the disk that stay free.
_LEAST_FREE = 1 << 30
_DAY_S = 24 * 3600.0
# Seconds after which an unfinished file is what a killed agent has left.
_UNFINISHED_S = 3600.0
_PIECE = 1 << 20


def open_own(environ: Mapping[str, str]) -> KeptFiles | None:
    """Return the kept files of this user; None if they cannot be kept, or other users reach them.

    Args:
        environ: environment variables of the agent.

    """
    try:
        return KeptFiles(own_paths.make_cache_folder("kept", environ))
    except OSError:
        return None


class KeptFiles:
    """Contents that are kept in a folder.

    Args:
        folder: path of the folder, which only this user can open.

    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._used: set[str] = set()  # by this job, which needs them
        self._sizes: dict[str, int] | None = None  # the longest unused first; None: not known yet
        self._left = 0  # bytes that the disk has room for

    def copy(self, name: str, size: int, target: FileIO) -> bool:
        """Copy a kept content into an empty file; return False if it is missing or damaged.

        Args:
            name: checksum of the content.
            size: number of its bytes.
            target: file to write to.

        Raises:
            OSError: the target cannot be written.

        """
        try:
            fd = os.open(self._get_path(name), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return False
        with open(fd, "rb", buffering=0) as source:
            if _copy(source, target, size) == name:
                self._used.add(name)
                _record_use(source.fileno())
                return True
        with contextlib.suppress(OSError):
            os.unlink(self._get_path(name))
        return False

    def _get_path(self, name: str) -> str:
        return os.path.join(self._folder, name)

    def keep(self, name: str, size: int, source: RawIOBase | BytesIO) -> None:
        """Keep a content, if there is room and it has this checksum.

        Args:
            name: checksum of the content.
            size: number of its bytes.
            source: file that has it; its position is changed.

        """
        unfinished = self._get_path(f".{os.urandom(8).hex()}")
        self._used.add(name)
        try:
            if not self._make_room(name, size):
                return
            source.seek(0)
            with open(os.open(unfinished, NEW_FILE, 0o600), "wb", buffering=0) as target:
                same = _copy(source, target, size) == name
            if same:
                os.rename(unfinished, self._get_path(name))
                return
        except OSError:  # as if the disk is full: the next job gets it again
            pass
        with contextlib.suppress(OSError):
            os.unlink(unfinished)

    def _make_room(self, name: str, size: int) -> bool:
        """Remove what has been unused for longest; return False if there is no room for `size`."""
        if self._sizes is None:
            self._sizes = self._clean()
            found = os.statvfs(self._folder)
            self._left = found.f_bavail * found.f_frsize - _LEAST_FREE
        if size > self._left:
            return False
        unused = [other for other in self._sizes if other not in self._used]
        while sum(self._sizes.values()) + size > MOST_BYTES:
            if not unused:
                return False
            _remove(self._get_path(unused[0]))
            del self._sizes[unused.pop(0)]
        self._sizes[name] = size
        self._left -= size
        return True

    def _clean(self) -> dict[str, int]:
        """Remove what is too old; return the sizes of the others, the longest unused first."""
        now = time.time()
        found: list[tuple[float, str, int]] = []
        for entry in os.scandir(self._folder):
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:  # another agent has removed it
                continue
            limit_s = _UNFINISHED_S if entry.name.startswith(".") else MOST_DAYS * _DAY_S
            if now - status.st_mtime > limit_s:
                _remove(entry.path)
            else:
                found.append((status.st_mtime, entry.name, status.st_size))
        return {name: size for _, name, size in sorted(found)}


def _remove(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):  # another agent has removed it
        os.unlink(path)


def _record_use(fd: int) -> None:
    """Set the modification time of a kept file, once a day: a use is what keeps it."""
    if time.time() - os.fstat(fd).st_mtime > _DAY_S:
        with contextlib.suppress(OSError):
            os.utime(fd)


def _copy(source: RawIOBase | BytesIO, target: FileIO, size: int) -> str:
    """Copy at most `size` bytes; return the checksum of these and of one more, if there is one.

    Raises:
        OSError: the target cannot be written.

    """
    made, left = checksum.begin(), size + 1
    while left > 0:
        try:
            piece = source.read(min(_PIECE, left))
        except OSError:
            break
        if not piece:
            break
        made.update(piece)
        left -= len(piece)
        write_all(target, piece)
    return made.hexdigest()

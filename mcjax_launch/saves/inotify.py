"""Linux's inotify: events about the files of a folder."""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Iterator

from mcjax_launch.errors import LaunchError
from mcjax_launch.wire.exit_status import USAGE
from mcjax_launch.wire.value import Value

_CLOSE_WRITE, _MOVED_FROM, _MOVED_TO, _CREATE = 0x8, 0x40, 0x80, 0x100
_OVERFLOW, _IGNORED, _ONLY_FOLDERS, _IS_FOLDER = 0x4000, 0x8000, 0x1000000, 0x40000000
_MOVE_SELF = 0x800
_WANTED = _CLOSE_WRITE | _MOVED_FROM | _MOVED_TO | _CREATE | _MOVE_SELF | _ONLY_FOLDERS
_HEAD = struct.Struct("iIII")  # watch, mask, cookie, length of the name
_MOST_BYTES = 1 << 16
_LIMITS = {
    errno.ENOSPC: "fs.inotify.max_user_watches",
    errno.EMFILE: "fs.inotify.max_user_instances",
}


class FolderEvent(Value):
    """An event about an entry of a watched folder, or about the folder.

    Args:
        watch: number of the folder's watch.
        name: name of the entry; "" for the folder itself.
        folder: True if the entry is a folder.
        saved: True if the entry is a file that was written and closed, or moved into the folder.
        came: True if the entry is new in the folder.
        gone: True if the entry was moved out of the folder, or renamed.
        moved: True if the folder itself was renamed.
        ended: True if the folder is no longer watched, as a rule because it was removed.
        missed: True if events were lost, of any folder.

    """

    watch: int
    name: str
    folder: bool = False
    saved: bool = False
    came: bool = False
    gone: bool = False
    moved: bool = False
    ended: bool = False
    missed: bool = False


class Inotify:
    """A set of watched folders.

    Attributes:
        fd: descriptor that is readable when there are events.

    Raises:
        LaunchError: this system has no inotify, or this user has reached a limit.

    """

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None, use_errno=True)
        if not hasattr(self._library, "inotify_init1"):
            raise LaunchError("--watch needs Linux, whose inotify reports saved files", USAGE)
        self.fd = self._library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self.fd < 0:
            raise make_limit_error(ctypes.get_errno())

    def add(self, folder: str) -> int:
        """Watch a folder; return the number of its watch, equal for all paths of the folder.

        Raises:
            OSError: the folder does not exist, or there are too many watches.

        """
        watch = int(self._library.inotify_add_watch(self.fd, os.fsencode(folder), _WANTED))
        if watch < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), folder)
        return watch

    def remove(self, watch: int) -> None:
        """Stop watching the folder with this watch number."""
        self._library.inotify_rm_watch(self.fd, watch)

    def read(self) -> Iterator[FolderEvent]:
        """Yield the events that have arrived."""
        while True:
            try:
                data = os.read(self.fd, _MOST_BYTES)
            except BlockingIOError:
                return
            at = 0
            while at < len(data):
                watch, mask, _, length = _HEAD.unpack_from(data, at)
                at += _HEAD.size + length
                name = os.fsdecode(data[at - length : at].rstrip(b"\0"))
                yield _make_event(watch, mask, name)


def _make_event(watch: int, mask: int, name: str) -> FolderEvent:
    is_folder = bool(mask & _IS_FOLDER)
    return FolderEvent(
        watch,
        name,
        folder=is_folder,
        # A symbolic link is complete when it is created, a file when it is closed.
        saved=not is_folder and bool(mask & (_CLOSE_WRITE | _MOVED_TO)),
        came=bool(mask & (_CREATE | _MOVED_TO)),
        gone=bool(mask & _MOVED_FROM),
        moved=bool(mask & _MOVE_SELF),
        ended=bool(mask & _IGNORED),
        missed=bool(mask & _OVERFLOW),
    )


def make_limit_error(number: int) -> LaunchError:
    """Return the error for an errno of inotify, with advice if a limit is reached."""
    why = os.strerror(number)
    if number in _LIMITS:
        why = f"the limit {_LIMITS[number]} is reached: raise it with sysctl"
    return LaunchError(f"--watch: {why}", USAGE)

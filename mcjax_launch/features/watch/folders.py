"""The files that count for --watch: the kernel says that one was saved, a look says which.

Linux's inotify reports that something happens in a watched folder. What has changed is found by
comparing all files that count with what they were.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Iterator, Sequence

from mcjax_launch.errors import LaunchError
from mcjax_launch.wire.exit_status import USAGE
from mcjax_launch.wire.value import Value

_MOST_FOLDERS = 4096
_NO_SOURCES = frozenset({"__pycache__", "node_modules"})
_OF_AN_ENVIRONMENT = "pyvenv.cfg"
_TEMPORARY = ("~", ".swp", ".swx", ".tmp", ".pyc", "___jb_tmp___", "___jb_old___")
_OF_VIM = "4913"  # a file that vim creates to test whether it can write

_CLOSE_WRITE, _MOVED_FROM, _MOVED_TO, _CREATE = 0x8, 0x40, 0x80, 0x100
_MOVE_SELF, _ONLY_FOLDERS, _IS_FOLDER = 0x800, 0x1000000, 0x40000000
_WANTED = _CLOSE_WRITE | _MOVED_FROM | _MOVED_TO | _CREATE | _MOVE_SELF | _ONLY_FOLDERS
_HEAD = struct.Struct("iIII")  # watch, mask, cookie, length of the name
_MOST_BYTES = 1 << 16
_LIMITS = {
    errno.ENOSPC: "fs.inotify.max_user_watches",
    errno.EMFILE: "fs.inotify.max_user_instances",
}


class Watched(Value):
    """A folder to watch, and which of its files count.

    Args:
        folder: absolute path of the folder.
        name: name of the only file that counts; "" if several may count.
        all_files: True if all files in and below the folder count; False for Python files in the
            folder and in the packages below it.

    """

    folder: str
    name: str = ""
    all_files: bool = False

    def includes_file(self, name: str) -> bool:
        """Return whether a file with this name counts."""
        if self.name:
            return name == self.name
        if name.startswith((".", "#")):
            return False
        if self.all_files:
            return not name.endswith(_TEMPORARY) and name != _OF_VIM
        return name.endswith(".py")

    def includes_folder(self, path: str) -> bool:
        """Return whether files in the subfolder at `path` count."""
        name = os.path.basename(path)
        if self.name or name.startswith(".") or name in _NO_SOURCES:
            return False
        if not self.all_files and not name.isidentifier():  # Python cannot import from it
            return False
        return not os.path.exists(os.path.join(path, _OF_AN_ENVIRONMENT))


class WatchedFolders:
    """The watched folders, and what their files were at the last look.

    Args:
        watched: folders and files to watch.
        without: paths of files and folders that do not count: the job itself writes them.

    Attributes:
        fd: descriptor that is readable when something has happened.
        problems: messages on folders that cannot be watched any more; the caller prints them.

    Raises:
        LaunchError: a folder cannot be watched, or there are too many; this system has no inotify.

    """

    def __init__(self, watched: Sequence[Watched], without: Sequence[str] = ()) -> None:
        self._library = ctypes.CDLL(None, use_errno=True)
        if not hasattr(self._library, "inotify_init1"):
            raise LaunchError("--watch needs Linux, whose inotify reports saved files", USAGE)
        self.fd = self._library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self.fd < 0:
            raise _make_limit_error(ctypes.get_errno())
        self._watched = watched
        self._without = {os.path.realpath(path) for path in without}
        self._folders: dict[int, str] = {}  # by the number of its watch
        self.problems: list[str] = []
        for rule in watched:
            if not os.path.isdir(rule.folder):
                raise LaunchError(f"--watch {rule.folder}: no such directory", USAGE)
        self._files = dict(self._look())
        for problem in self.problems:
            raise LaunchError(problem, USAGE)

    def read_saved_paths(self) -> list[str]:
        """Return the paths of files that count and were saved since the last call."""
        if not self._has_news():
            return []
        before, self._files = self._files, dict(self._look())
        return [path for path, now in self._files.items() if before.get(path) != now]

    def _has_news(self) -> bool:
        """Read the events that have arrived; return whether a file or folder may have changed."""
        is_news = False
        while data := self._read():
            at = 0
            while at < len(data):
                watch, mask, _, length = _HEAD.unpack_from(data, at)
                at += _HEAD.size + length
                name = os.fsdecode(data[at - length : at].rstrip(b"\0"))
                is_news |= self._is_news(watch, mask, name)
        return is_news

    def _read(self) -> bytes:
        """Read events; return b"" if there are no more."""
        try:
            return os.read(self.fd, _MOST_BYTES)
        except BlockingIOError:
            return b""

    def _is_news(self, watch: int, mask: int, name: str) -> bool:
        """Return whether an event may be the save of a file that counts, or be about a folder."""
        if not name or mask & _IS_FOLDER:
            return True
        if not any(rule.includes_file(name) for rule in self._watched):
            return False
        # A symbolic link is complete when it is created, a file when it is closed.
        is_link = os.path.islink(os.path.join(self._folders.get(watch, ""), name))
        return bool(mask & (_CLOSE_WRITE | _MOVED_TO)) or is_link

    def _look(self) -> Iterator[tuple[str, object]]:
        """Watch all folders that count; yield the files that count, and what changes with each."""
        self._folders = {}
        for rule in self._watched:
            if not os.path.isdir(rule.folder):
                gone = f"--watch: {rule.folder} is gone"
                self._report(f"{gone}: restart mcjax-launch to watch it again")
            yield from self._look_below(rule, rule.folder, set())

    def _look_below(
        self, rule: Watched, folder: str, above: set[str]
    ) -> Iterator[tuple[str, object]]:
        real = os.path.realpath(folder)
        if real in above or real in self._without or not self._watch(rule, folder):
            return
        above.add(real)
        for entry in _list_entries(folder):
            if _is_folder(entry):
                if rule.includes_folder(entry.path):
                    yield from self._look_below(rule, entry.path, above)
            elif rule.includes_file(entry.name) and os.path.realpath(entry) not in self._without:
                yield entry.path, _identify(entry)

    def _watch(self, rule: Watched, folder: str) -> bool:
        """Watch a folder; return False if that is not possible."""
        if len(self._folders) >= _MOST_FOLDERS:
            self._report(
                f"--watch: more than {_MOST_FOLDERS} directories below {rule.folder}: "
                "move PROGRAM into a directory of its own, or watch fewer"
            )
            return False
        # A folder that is watched already has its number.
        watch = self._library.inotify_add_watch(self.fd, os.fsencode(folder), _WANTED)
        if watch < 0:
            number = ctypes.get_errno()
            if number not in (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ELOOP):
                self._report(str(_make_limit_error(number)))
            return False
        self._folders[watch] = folder
        return True

    def _report(self, problem: str) -> None:
        if problem not in self.problems:
            self.problems.append(problem)


def _identify(entry: os.DirEntry[str]) -> object:
    """Return numbers that change when a file is saved."""
    try:
        found = entry.stat()
    except OSError:  # a link that leads nowhere yet
        return entry.inode()
    return found.st_ino, found.st_mtime_ns, found.st_size


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """Return whether an entry is a folder, or a link to one that can be followed."""
    try:
        return entry.is_dir()
    except OSError:  # a link that loops, or leads where this user may not read
        return False


def _list_entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError:  # the folder is gone
        return []


def _make_limit_error(number: int) -> LaunchError:
    """Return the error for an errno of inotify, with advice if a limit is reached."""
    why = os.strerror(number)
    if number in _LIMITS:
        why = f"the limit {_LIMITS[number]} is reached: raise it with sysctl"
    return LaunchError(f"--watch: {why}", USAGE)

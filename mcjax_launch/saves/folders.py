"""Watched folders, and the rules on which of their files count."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence

from mcjax_launch.errors import LaunchError
from mcjax_launch.saves.inotify import FolderEvent, Inotify, make_limit_error
from mcjax_launch.wire.exit_status import USAGE
from mcjax_launch.wire.value import Value

_MOST_FOLDERS = 4096
_NO_SOURCES = frozenset({"__pycache__", "node_modules"})
_OF_AN_ENVIRONMENT = "pyvenv.cfg"
_TEMPORARY = ("~", ".swp", ".swx", ".tmp", ".pyc", "___jb_tmp___", "___jb_old___")
_OF_VIM = "4913"  # a file that vim creates to test whether it can write


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
    """The watched folders, kept up to date as folders are created and removed.

    Args:
        watched: folders and files to watch.
        without: paths of files and folders that do not count: the job itself writes them.

    Attributes:
        fd: descriptor that is readable when there are events.
        problems: messages on folders that cannot be watched any more; the caller prints them.

    Raises:
        LaunchError: a folder cannot be watched, or there are too many.

    """

    def __init__(self, watched: Sequence[Watched], without: Sequence[str] = ()) -> None:
        self._inotify = Inotify()
        self.fd = self._inotify.fd
        self._watched = watched
        self._without = {os.path.realpath(path) for path in without}
        self._paths: dict[int, str] = {}  # by the number of its watch
        self._rules: dict[int, set[Watched]] = {}
        self._is_started = False
        self.problems: list[str] = []
        for rule in watched:
            for _ in self._add_all(rule.folder, rule):
                pass
            if rule.folder not in self._paths.values() and not self._is_known(rule.folder):
                raise LaunchError(f"--watch {rule.folder}: no such directory", USAGE)
        self._is_started = True

    def _is_known(self, folder: str) -> bool:
        return os.path.realpath(folder) in map(os.path.realpath, self._paths.values())

    def read_saved_paths(self) -> list[str]:
        """Return the paths of files that count and were saved since the last call."""
        found: dict[str, None] = {}
        for event in list(self._inotify.read()):
            found.update(dict.fromkeys(self._iterate_saved(event)))
        return list(found)

    def _iterate_saved(self, event: FolderEvent) -> Iterator[str]:
        if event.missed:
            for rule in self._watched:
                yield from self._add_all(rule.folder, rule)
            yield self._watched[0].folder  # any file may have been saved
        elif event.watch in self._paths:
            yield from self._iterate_saved_in(
                event, self._paths[event.watch], self._rules[event.watch]
            )

    def _iterate_saved_in(
        self, event: FolderEvent, folder: str, rules: set[Watched]
    ) -> Iterator[str]:
        path = os.path.join(folder, event.name)
        if event.moved:
            self._inotify.remove(event.watch)  # leads to an event that it has ended
        elif event.ended:
            del self._paths[event.watch], self._rules[event.watch]
            if any(rule.folder == folder for rule in rules):
                self._report(f"--watch: {folder} is gone: restart mcjax-launch to watch it again")
        elif event.folder and event.gone:
            self._forget(path)
        elif event.came and os.path.isdir(path):
            for rule in rules:
                if rule.includes_folder(path):
                    yield from self._add_all(path, rule)
        elif event.saved or (event.came and os.path.islink(path)):
            counts = any(rule.includes_file(event.name) for rule in rules)
            yield from [path] if counts and os.path.realpath(path) not in self._without else []

    def _forget(self, folder: str) -> None:
        """Stop watching a folder that has been renamed, and all folders below it."""
        below = os.path.join(folder, "")
        for watch, path in list(self._paths.items()):
            if path == folder or path.startswith(below):
                self._inotify.remove(watch)
                del self._paths[watch], self._rules[watch]

    def _add_all(self, top: str, rule: Watched) -> Iterator[str]:
        """Watch a folder and the folders below it by a rule; yield their files that count."""
        ahead, seen = [top], set()
        while ahead:
            folder = ahead.pop(0)
            real = os.path.realpath(folder)
            if real in seen or real in self._without or not self._add(folder, rule):
                continue
            seen.add(real)
            for entry in _list_entries(folder):
                if _is_folder(entry):
                    ahead += [entry.path] if rule.includes_folder(entry.path) else []
                elif rule.includes_file(entry.name):
                    yield entry.path

    def _add(self, folder: str, rule: Watched) -> bool:
        """Watch a single folder; return False if that is not possible.

        Raises:
            LaunchError: a limit is reached while WatchedFolders is created.

        """
        if len(self._paths) >= _MOST_FOLDERS:
            self._refuse(
                LaunchError(
                    f"--watch: more than {_MOST_FOLDERS} directories below {rule.folder}: "
                    "move PROGRAM into a directory of its own, or watch fewer",
                    USAGE,
                )
            )
            return False
        try:
            watch = self._inotify.add(folder)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ELOOP):
                return False
            self._refuse(make_limit_error(error.errno or 0))
            return False
        self._paths[watch] = folder
        self._rules.setdefault(watch, set()).add(rule)
        return True

    def _refuse(self, error: LaunchError) -> None:
        """Raise an error while WatchedFolders is created; later add it to `problems`."""
        if not self._is_started:
            raise error from None
        self._report(f"{error}; files in further directories are not watched")

    def _report(self, problem: str) -> None:
        if problem not in self.problems:
            self.problems.append(problem)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """Return whether an entry is a folder, or a link to one that can be followed."""
    try:
        return entry.is_dir()
    except OSError:  # a link that loops, or leads where this user may not read
        return False


def _list_entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:  # the folder is gone
        return []

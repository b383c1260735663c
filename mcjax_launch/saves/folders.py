"""Watched folders, and the rules on which of their files count."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping, Sequence

from mcjax_launch.errors import LaunchError
from mcjax_launch.kernel.wire.exit_status import USAGE
from mcjax_launch.kernel.wire.value import Value
from mcjax_launch.saves.inotify import FolderEvent, Inotify, limit_error

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

    def counts(self, name: str) -> bool:
        """Return whether a file with this name counts."""
        if self.name:
            return name == self.name
        if name.startswith((".", "#")):
            return False
        if self.all_files:
            return not name.endswith(_TEMPORARY) and name != _OF_VIM
        return name.endswith(".py")

    def descends(self, path: str) -> bool:
        """Return whether files in the subfolder at `path` count."""
        name = os.path.basename(path)
        if self.name or name.startswith(".") or name in _NO_SOURCES:
            return False
        if not self.all_files and not name.isidentifier():  # Python cannot import from it
            return False
        return not os.path.exists(os.path.join(path, _OF_AN_ENVIRONMENT))


class WatchedFolders:
    """The watched folders, scanned again when a folder is created, renamed or removed.

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
        self._scan()
        for rule in self._missing():
            raise LaunchError(f"--watch {rule.folder}: no such directory", USAGE)
        self._is_started = True

    def _missing(self) -> list[Watched]:
        """Return the rules whose folder is not watched, because it does not exist."""
        known = set(map(os.path.realpath, self._paths.values()))
        return [rule for rule in self._watched if os.path.realpath(rule.folder) not in known]

    def saved(self) -> list[str]:
        """Return the paths of files that count and were saved since the last call."""
        events = list(self._inotify.read())
        found = [path for event in events for path in self._saved(event)]
        if any(event.missed for event in events):
            found.append(self._watched[0].folder)  # any file may have been saved
        if any(
            event.folders or event.missed or os.path.isdir(self._path(event)) for event in events
        ):
            found += self._scan()
            for rule in self._missing():
                gone = f"--watch: {rule.folder} is gone"
                self._report(f"{gone}: restart mcjax-launch to watch it again")
        return list(dict.fromkeys(found))

    def _path(self, event: FolderEvent) -> str:
        """Return the path that an event is about; "" for that of a folder not watched any more."""
        folder = self._paths.get(event.watch, "")
        return os.path.join(folder, event.name) if folder and event.name else ""

    def _saved(self, event: FolderEvent) -> Iterator[str]:
        path = self._path(event)
        # A symbolic link is complete when it is created, a file when it is closed.
        if event.saved or (path and os.path.islink(path)):
            counts = any(rule.counts(event.name) for rule in self._rules.get(event.watch, ()))
            if counts and os.path.realpath(path) not in self._without:
                yield path

    def _scan(self) -> list[str]:
        """Watch all folders in and below those of the rules, and no others.

        Return the files that count in folders that were not watched under this path before.
        """
        before, self._paths, self._rules = self._paths, {}, {}
        found = [path for rule in self._watched for path in self._add_all(rule, before)]
        for watch in before.keys() - self._paths.keys():
            self._inotify.remove(watch)
        return found

    def _add_all(self, rule: Watched, before: Mapping[int, str]) -> Iterator[str]:
        """Watch the folders of a rule; yield the files that count in those not in `before`."""
        ahead, seen = [rule.folder], set()
        while ahead:
            folder = ahead.pop(0)
            real = os.path.realpath(folder)
            if real in seen or real in self._without:
                continue
            watch = self._add(folder, rule)
            if watch is None:
                continue
            seen.add(real)
            is_new = before.get(watch) != folder
            for entry in _entries(folder):
                if entry.is_dir():
                    ahead += [entry.path] if rule.descends(entry.path) else []
                elif is_new and rule.counts(entry.name):
                    yield entry.path

    def _add(self, folder: str, rule: Watched) -> int | None:
        """Watch a single folder; return the number of its watch, None if that is not possible.

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
            return None
        try:
            watch = self._inotify.add(folder)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ELOOP):
                return None
            self._refuse(limit_error(error.errno or 0))
            return None
        self._paths[watch] = folder
        self._rules.setdefault(watch, set()).add(rule)
        return watch

    def _refuse(self, error: LaunchError) -> None:
        """Raise an error while WatchedFolders is created; later add it to `problems`."""
        if not self._is_started:
            raise error from None
        self._report(f"{error}; files in further directories are not watched")

    def _report(self, problem: str) -> None:
        if problem not in self.problems:
            self.problems.append(problem)


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError:  # the folder is gone
        return []

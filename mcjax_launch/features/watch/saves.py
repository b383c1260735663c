"""The files saved since the last start of the job, and whether they start it again.

Linux's inotify reports that something happens in a watched folder. What has changed is found by
comparing all files that count with what they were.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache

from mcjax_launch.errors import LaunchError
from mcjax_launch.features.watch.files import Watched
from mcjax_launch.job.program_file import find_syntax_errors
from mcjax_launch.machine.system import list_names
from mcjax_launch.wire.exit_status import USAGE
from mcjax_launch.wire.source_lines import format_path
from mcjax_launch.wire.timers import scale_time

# Saves that follow each other sooner count as one.
_QUIET_S = scale_time(0.1)
_MOST_FOLDERS = 4096
_CLOSE_WRITE, _MOVED_TO, _CREATE, _MOVE_SELF = 0x8, 0x80, 0x100, 0x800
_ONLY_FOLDERS, _IS_FOLDER = 0x1000000, 0x40000000
_WANTED = _CLOSE_WRITE | _MOVED_TO | _CREATE | _MOVE_SELF | _ONLY_FOLDERS
_HEAD = struct.Struct("iIII")  # watch, mask, cookie, length of the name
_MOST_BYTES = 1 << 16


class Saves:
    """The files saved since the last start of the job, and whether they start it again.

    Args:
        watched: folders and files to watch.
        without: paths of files and folders that do not count: the job itself writes them.
        python: interpreter of the ranks, for syntax checks.
        say: called with a line about a syntax error, or a folder that cannot be watched.
        on_due: called with a description of the files for which the job must be started again.

    Attributes:
        fd: descriptor that is readable when something has happened.
        deadline: time to decide, in time.monotonic's seconds; None if there is no undecided save.
        is_due: True if the job must be started again.

    Raises:
        LaunchError: this system has no inotify, or has no more.

    """

    def __init__(
        self,
        watched: Sequence[Watched],
        without: Iterable[str],
        python: str,
        say: Callable[[str], object],
        on_due: Callable[[str], object],
    ) -> None:
        self.deadline: float | None = None
        self.is_due = False
        self._watched, self._without = watched, {os.path.realpath(path) for path in without}
        self._python, self._say, self._on_due = python, say, on_due
        self._say_once = cache(say)
        self._changed: dict[str, None] = {}
        self._library = ctypes.CDLL(None, use_errno=True)
        if not hasattr(self._library, "inotify_init1"):
            raise LaunchError("--watch needs Linux, whose inotify reports saved files", USAGE)
        self.fd = self._library.inotify_init1(os.O_CLOEXEC)
        if self.fd < 0:
            raise LaunchError(f"--watch: {_explain_errno()}", USAGE)
        self._files = dict(self._look())

    @property
    def is_ready(self) -> bool:
        """True if the job must be started again and no further save is undecided."""
        return self.is_due and self.deadline is None

    def begin(self) -> None:
        """Forget all saves before a start of the job; remove what was compiled of these files."""
        for path in self._changed:
            remove_compiled(path)
        self._changed.clear()
        self.is_due = False

    def read(self) -> None:
        """Read what has happened, once `fd` is readable."""
        if not any(self._is_news(*event) for event in _parse(os.read(self.fd, _MOST_BYTES))):
            return
        before, self._files = self._files, dict(self._look())
        if saved := [path for path, now in self._files.items() if before.get(path) != now]:
            self._changed |= dict.fromkeys(saved)
            self.deadline = time.monotonic() + _QUIET_S

    def expire(self, now: float) -> None:
        """Decide once `deadline` is reached: no file may have a syntax error."""
        if self.deadline is None or now < self.deadline:
            return
        self.deadline = None
        sources = [path for path in self._changed if path.endswith(".py")]
        errors = find_syntax_errors(sources, self._python)
        for path, error in errors.items():
            self._say(f"{format_path(path)}:{error}; not started again before it is corrected")
        was_due, self.is_due = self.is_due, not errors
        if self.is_due and not was_due:
            self._on_due(describe_changes(self._changed))

    def _is_news(self, mask: int, name: str) -> bool:
        """Return whether an event may be the save of a file that counts, or be about a folder."""
        if not name or mask & _IS_FOLDER:  # without a name events may have been lost
            return True
        is_whole = mask & (_CLOSE_WRITE | _MOVED_TO)
        return bool(is_whole) and any(rule.includes_file(name) for rule in self._watched)

    def _look(self) -> Iterator[tuple[str, object]]:
        """Watch all folders that count; yield the files that count, and what changes with each."""
        found: set[str] = set()
        for rule in self._watched:
            if not os.path.isdir(rule.folder):
                gone = f"--watch: {rule.folder} is gone"
                self._say_once(f"{gone}: start mcjax-launch again to watch it")
            done: set[str] = set()  # a link may lead to a folder above
            for folder, below, names in os.walk(rule.folder, followlinks=True):
                real = os.path.realpath(folder)
                if real in done or real in self._without or len(found) >= _MOST_FOLDERS:
                    below.clear()
                    continue
                self._watch(folder)
                done.add(real)
                found.add(real)
                below[:] = filter(lambda name: rule.includes_folder(f"{folder}/{name}"), below)
                for name in filter(rule.includes_file, names):
                    if f"{real}/{name}" not in self._without:
                        yield (path := f"{folder}/{name}"), _identify(path)
            if len(found) >= _MOST_FOLDERS:
                most = f"--watch: {rule.folder} has too many directories"
                self._say_once(f"{most}, and only {_MOST_FOLDERS} are watched: name a smaller one")

    def _watch(self, folder: str) -> None:
        """Watch a folder; one that is watched already keeps its watch."""
        watch = self._library.inotify_add_watch(self.fd, os.fsencode(folder), _WANTED)
        if watch < 0 and ctypes.get_errno() != errno.ENOENT:  # gone since it was listed
            self._say_once(f"--watch: {folder} is not watched: {_explain_errno()}")


def _parse(data: bytes) -> Iterator[tuple[int, str]]:
    """Yield the mask and the file's name of each event."""
    while data:
        _, mask, _, length = _HEAD.unpack_from(data)
        end = _HEAD.size + length
        yield mask, os.fsdecode(data[_HEAD.size : end].rstrip(b"\0"))
        data = data[end:]


def _explain_errno() -> str:
    """Return what the errno of inotify means, with advice if a limit is reached."""
    number = ctypes.get_errno()
    limits = {errno.ENOSPC: "max_user_watches", errno.EMFILE: "max_user_instances"}
    advice = f": raise fs.inotify.{limits[number]} with sysctl" if number in limits else ""
    return f"{os.strerror(number)}{advice}"


def _identify(path: str) -> object:
    """Return numbers that change when a file is saved; None for a link that leads nowhere."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def describe_changes(paths: Iterable[str]) -> str:
    """Return words such as "a.py and 2 other files have changed"; there must be a path."""
    first, *more = paths
    if not more:
        return f"{format_path(first)} has changed"
    others = format_path(more[0]) if len(more) == 1 else f"{len(more)} other files"
    return f"{format_path(first)} and {others} have changed"


def remove_compiled(path: str) -> None:
    """Remove the compiled files of a source file, from which Python would make them again.

    Python compares the source's time in whole seconds and its length. So if a module is saved twice
    within a second, with equal lengths, its first version would be run.
    """
    folder, name = os.path.split(path)
    folder = os.path.join(folder, "__pycache__")
    for compiled in list_names(folder):
        if name.endswith(".py") and compiled.startswith(name[:-2]):
            with contextlib.suppress(OSError):  # another user's
                os.unlink(os.path.join(folder, compiled))

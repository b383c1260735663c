"""The decision, after files have been saved, whether to start the job again."""

from __future__ import annotations

import contextlib
import glob
import os
import time
from collections.abc import Iterable
from typing import Protocol

from mcjax_launch.features.watch.folders import WatchedFolders
from mcjax_launch.job.program_file import find_syntax_errors
from mcjax_launch.machine.loop import READ, Loop
from mcjax_launch.wire.source_lines import format_path
from mcjax_launch.wire.timers import scale_time

# Saves less than the first of these apart count as one, which lasts at most the second.
_QUIET_S = scale_time(0.1)
_MOST_S = scale_time(1.0)


class SavesListener(Protocol):
    """Receiver of what saves lead to."""

    def on_due(self, changed: str) -> None:
        """Handle that the job must be started again, because of the files described."""

    def on_syntax_error(self, error: str) -> None:
        """Handle that a saved file cannot be compiled."""

    def on_problem(self, problem: str) -> None:
        """Handle that some files cannot be watched any more."""


class Saves:
    """The files saved since the last start of the job, and whether they restart it.

    Args:
        folders: watched folders.
        loop: the loop that reports events of the folders.
        python: interpreter of the ranks, for syntax checks.
        listener: receiver of what the saves lead to.

    Attributes:
        deadline: time to decide, in time.monotonic's seconds; None if there is no undecided save.
        is_due: True if the job must be started again.

    """

    def __init__(
        self, folders: WatchedFolders, loop: Loop, python: str, listener: SavesListener
    ) -> None:
        self.deadline: float | None = None
        self.is_due = False
        self._folders = folders
        self._python = python
        self._listener = listener
        self._began_at = 0.0
        self._files: dict[str, None] = {}  # saved, and not decided about
        self._broken: dict[str, None] = {}  # with a syntax error when last saved
        self._changed: dict[str, None] = {}  # since the last start
        self._problems = 0  # number of reported ones
        loop.watch(folders.fd, READ, lambda ready: self._read_saved_paths())

    @property
    def is_ready(self) -> bool:
        """True if the job must be started again and no further save is undecided."""
        return self.is_due and self.deadline is None

    @property
    def is_quiet(self) -> bool:
        """True if no file has been saved since the last start, as far as that is decided."""
        return not self.is_due and not self._files

    def request(self) -> None:
        """Start the job again although no file has been saved."""
        self.is_due = True

    def begin(self) -> None:
        """Forget all saves before a start of the job; remove what was compiled of these files."""
        for path in self._changed:
            if path.endswith(".py"):
                remove_compiled(path)
        self._changed.clear()
        self.is_due = False

    def _read_saved_paths(self) -> None:
        files, now = self._folders.read_saved_paths(), time.monotonic()
        for problem in self._folders.problems[self._problems :]:
            self._listener.on_problem(problem)
        self._problems = len(self._folders.problems)
        if not files:
            return
        if not self._files:
            self._began_at = now
        self._files.update(dict.fromkeys(files))
        self.deadline = min(now + _QUIET_S, self._began_at + _MOST_S)

    def expire(self, now: float) -> None:
        """Decide on saved files once `deadline` is reached; print syntax errors."""
        if self.deadline is None or now < self.deadline:
            return
        self.deadline = None
        files, self._files = self._files, {}
        self._changed.update(files)
        sources = [path for path in {**self._broken, **files} if path.endswith(".py")]
        errors = find_syntax_errors(sources, self._python)
        self._broken = dict.fromkeys(errors)
        for path in self._broken:
            self._listener.on_syntax_error(f"{format_path(path)}:{errors[path]}")
        was_due, self.is_due = self.is_due, not self._broken
        if self.is_due and not was_due:
            self._listener.on_due(describe_changes(self._changed))


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
    pattern = os.path.join(glob.escape(folder), "__pycache__", f"{glob.escape(name[:-3])}.*.pyc")
    for compiled in glob.glob(pattern):
        with contextlib.suppress(OSError):
            os.unlink(compiled)

"""Options that name the same path, or a path within another's: one would overwrite the other."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import permutations
from typing import NamedTuple

from mcjax_launch.errors import LaunchError
from mcjax_launch.job import placeholders
from mcjax_launch.job.job import is_python
from mcjax_launch.options.options import Options

# What is written into the folders of options.
_LOG_FILES = r"\d+\.(out|err)"
_TRACES = r"(\d+|plugins)(/.*)?|trace(-\d+)?\.json\.gz(\.part)?"


class _Named(NamedTuple):
    """A path that an option names."""

    option: str
    given: str
    path: str  # real
    written: bool

    @property
    def is_folder(self) -> bool:
        return self.option in ("--log-dir", "--profile", "--black-box")

    def __str__(self) -> str:
        return f"{self.option} {self.given}"


def check(options: Options) -> None:
    """Refuse two options of which one would overwrite the other's file, or be in its way.

    Raises:
        LaunchError: there are such.

    """
    try:
        named = list(_named(options))
    except OSError:  # the working directory is gone, which others say better
        return
    for one, other in permutations(named, 2):
        if one.written:
            _check_pair(one, other)


def _named(options: Options) -> Iterator[_Named]:
    """The paths that are written, and the files that are read."""
    known = {"host": os.uname().nodename}
    if options.num_processes is not None:
        known["num_processes"] = str(options.num_processes)
    for option, given in (
        ("--report", options.report),
        ("--log-dir", options.log_dir),
        ("--profile", options.profile),
        ("--black-box", options.black_box),
    ):
        if given:
            yield _Named(option, given, os.path.realpath(placeholders.fill(given, known)), True)
    if isinstance(options.hosts, str) and os.path.isfile(options.hosts):
        yield _Named("--hosts", options.hosts, os.path.realpath(options.hosts), False)
    if options.program and not options.module and is_python(options.program, module=False):
        path = os.path.join(options.chdir or "", options.program[0])
        yield _Named("PROGRAM", options.program[0], os.path.realpath(path), False)


def _check_pair(one: _Named, other: _Named) -> None:
    """Refuse `one` if it is the same as the other, in it where it is a file, or part of it."""
    below = _below(one.path, _for_rank(other.path, one.path))
    if below is None:
        return
    if not below:
        raise LaunchError(f"{one} and {other} name one path: give one of them another")
    if not other.is_folder:
        raise LaunchError(f"{one}: {other} is a file, not a directory; give another path")
    what = ""
    if other.option == "--log-dir" and re.fullmatch(_LOG_FILES, below):
        what = "a rank's output"
    elif other.option == "--profile" and re.fullmatch(_TRACES, below, re.DOTALL):
        what = "ranks' traces"
    if what:
        raise LaunchError(f"{one}: {other} writes {what} there; give another path")


def _for_rank(folder: str, path: str) -> str:
    """A folder of log files as it is for the rank whose log file has the path's name."""
    rank = os.path.basename(path).partition(".")[0]
    return placeholders.fill(folder, {"process_id": rank, "local_process_id": rank})


def _below(path: str, folder: str) -> str | None:
    """The path as seen from a folder that holds it; "" if it is the folder; None if it is not."""
    wanted, below = _identity(folder), ""
    while _identity(path) != wanted:
        path, name = os.path.split(path)
        if not name:
            return None
        below = os.path.join(name, below) if below else name
    return below


def _identity(path: str) -> tuple[int, int, str]:
    """Equal for two paths of one file: links and mounts give it more than one."""
    there = path
    while True:
        try:
            found = os.stat(there)
        except OSError:
            there = os.path.dirname(there)
        else:
            return found.st_dev, found.st_ino, os.path.relpath(path, there)

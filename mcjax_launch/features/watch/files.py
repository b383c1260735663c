"""The files that --watch watches: PROGRAM, its Python files, and paths that the user names."""

from __future__ import annotations

import os
from collections.abc import Iterator

from mcjax_launch.errors import LaunchError
from mcjax_launch.features.watch.options import WatchOptions
from mcjax_launch.job.job import Job
from mcjax_launch.job.program_file import find_program
from mcjax_launch.options import features as declared
from mcjax_launch.wire.exit_status import USAGE
from mcjax_launch.wire.value import Value

#: The value of --watch without a path.
PROGRAMS_OWN = "all"

_NO_SOURCES = frozenset({"__pycache__", "node_modules"})
_OF_AN_ENVIRONMENT = "pyvenv.cfg"
_TEMPORARY = ("~", ".swp", ".swx", ".tmp", ".pyc", "___jb_tmp___", "___jb_old___")


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
            return not name.endswith(_TEMPORARY)
        return name.endswith(".py")

    def includes_folder(self, path: str) -> bool:
        """Return whether files in the subfolder at `path` count."""
        name = os.path.basename(path)
        if self.name or name.startswith(".") or name in _NO_SOURCES:
            return False
        if not self.all_files and not name.isidentifier():  # Python cannot import from it
            return False
        return not os.path.exists(os.path.join(path, _OF_AN_ENVIRONMENT))


def find_watched(job: Job) -> list[Watched]:
    """Return the files and folders on this machine that --watch watches for a job.

    Raises:
        LaunchError: a path does not exist, or there is no file to watch.

    """
    found = [
        *_find_program_files(job),
        *(_find_named("--sync", path) for path in job.sync),
        *(
            _find_named("--watch", path)
            for path in WatchOptions.of(job).watch
            if path != PROGRAMS_OWN
        ),
    ]
    if not found:
        raise LaunchError(
            f"--watch: {job.program[0]} names no file here; name one: --watch=PATH", USAGE
        )
    return found


def list_written_paths(job: Job) -> list[str]:
    """Return the paths that the job itself writes to, whose changes --watch ignores."""
    jax_cache = {**os.environ, **dict(job.env)}.get("JAX_COMPILATION_CACHE_DIR")
    paths = (
        job.log_dir,
        declared.get(job, "profile"),
        declared.get(job, "report"),
        declared.get(job, "compile_cache"),
        jax_cache,
    )
    return [_cut_at_placeholder(path) for path in paths if path]


def _cut_at_placeholder(path: str) -> str:
    """Return the folder above a path's first placeholder; without placeholders the whole path."""
    before, brace, _ = path.partition("{")
    return os.path.dirname(before) if brace and os.path.dirname(before) else path


def _find_program_files(job: Job) -> Iterator[Watched]:
    path = find_program(job)
    if path is None:
        return
    real = os.path.realpath(path)
    for name in dict.fromkeys((path, real)):  # a link may be replaced, or its target
        yield Watched(os.path.dirname(name), os.path.basename(name))
    folder = os.path.dirname(real)
    while job.module and os.path.isfile(os.path.join(os.path.dirname(folder), "__init__.py")):
        folder = os.path.dirname(folder)  # to the outermost package
    yield Watched(folder)


def _find_named(option: str, path: str) -> Watched:
    """Return what an option's path names; of --watch's folder all files count."""
    there = os.path.abspath(path)
    folder, name = os.path.split(there)
    if os.path.isdir(there):
        return Watched(there, all_files=option == "--watch")
    if not os.path.isdir(folder):
        raise LaunchError(f"{option} {path}: no such file or directory", USAGE)
    return Watched(folder, name)

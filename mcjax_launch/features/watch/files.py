"""The files that --watch watches: PROGRAM, its Python files, and paths that the user names."""

import os
from collections.abc import Iterator

from mcjax_launch.errors import LaunchError
from mcjax_launch.features.watch.folders import Watched
from mcjax_launch.features.watch.options import WatchOptions
from mcjax_launch.job.job import Job
from mcjax_launch.job.program_file import find_program
from mcjax_launch.options import features as declared
from mcjax_launch.wire.exit_status import USAGE

#: The value of --watch without a path.
PROGRAMS_OWN = "all"


def find_watched(job: Job) -> list[Watched]:
    """Return the files and folders on this machine that --watch watches for a job.

    Raises:
        LaunchError: a path does not exist, or there is no file to watch.

    """
    named = [path for path in WatchOptions.of(job).watch if path != PROGRAMS_OWN]
    found = [*_find_program_files(job), *_list_synced(job), *map(_make_watched, named)]
    if not found:
        raise LaunchError(
            f"--watch: {job.program[0]} names no file here; name one: --watch=PATH", USAGE
        )
    return list(dict.fromkeys(found))


def list_written_paths(job: Job) -> list[str]:
    """Return the paths that the job itself writes to, whose changes --watch ignores."""
    jax_cache = {**os.environ, **dict(job.env)}.get("JAX_COMPILATION_CACHE_DIR")
    paths = (
        job.log_dir,
        declared.get(job, "profile"),
        job.report,
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
    yield Watched(_find_package(os.path.dirname(real)) if job.module else os.path.dirname(real))


def _find_package(folder: str) -> str:
    """Return the folder of the outermost package that contains a module's folder."""
    while os.path.isfile(os.path.join(os.path.dirname(folder), "__init__.py")):
        folder = os.path.dirname(folder)
    return folder


def _list_synced(job: Job) -> Iterator[Watched]:
    """Yield the folders and files of --sync."""
    for path in map(os.path.abspath, job.sync):
        if os.path.isdir(path):
            yield Watched(path)
        else:
            yield Watched(os.path.dirname(path), os.path.basename(path))


def _make_watched(path: str) -> Watched:
    there = os.path.abspath(path)
    if os.path.isdir(there):
        return Watched(there, all_files=True)
    if not os.path.isdir(os.path.dirname(there)):
        raise LaunchError(f"--watch {path}: no such file or directory", USAGE)
    return Watched(os.path.dirname(there), os.path.basename(there))

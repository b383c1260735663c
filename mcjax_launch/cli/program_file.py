"""The file of PROGRAM on this machine."""

import os
from collections.abc import Sequence

from mcjax_launch.features.preload.program import Unsuited, find_source_file
from mcjax_launch.job.job import Job


def find_program(job: Job) -> str | None:
    """Return the file of PROGRAM; None if it is not on this machine."""
    if job.module:
        words: Sequence[str] = (job.python, "-m", *job.program)
    elif job.is_python:
        words = (job.python, *job.program)
    elif os.path.basename(job.program[0]).startswith("python"):
        words = job.program
    else:
        return _find_script(job)
    try:
        path = find_source_file(words, job.chdir, {**os.environ, **dict(job.env)})
    except Unsuited:
        return None
    path = os.path.abspath(path)
    return path if os.path.isfile(path) else None


def _find_script(job: Job) -> str | None:
    """Return a command's first argument that is a file, as in `bash run.sh`, else its own file.

    None if there is neither.
    """
    name, *arguments = job.program
    for word in (*arguments, *([name] if os.sep in name else [])):
        path = os.path.abspath(os.path.join(job.chdir, word))
        if os.path.isfile(path):
            return path
    return None

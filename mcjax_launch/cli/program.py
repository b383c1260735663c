"""PROGRAM on this machine, looked for before anything is started."""

import os
from collections.abc import Callable, Sequence
from typing import TypeVar

from mcjax_launch.errors import LaunchError
from mcjax_launch.job.job import Job
from mcjax_launch.protocol.program_check import Unusable, check_python_file, cure, find_command

T = TypeVar("T")


def check_program(job: Job) -> None:
    """Look for PROGRAM where a rank on this machine would.

    Raises:
        LaunchError: it is not there, or cannot be run or read.

    """
    name = job.program[0]
    if not job.is_python:
        path = dict(job.env).get("PATH", os.environ.get("PATH", os.defpath))
        checked(lambda: find_command(name, job.chdir, path))
    elif not job.module:
        checked(lambda: check_python_file(name, job.chdir))


def hint_where_missing(program: Sequence[str], module: bool, sync: Sequence[str]) -> str:
    """What helps where a host has no PROGRAM, if it is a file; "" if only a look there can tell.

    Args:
        program: PROGRAM and its arguments.
        module: it is a module.
        sync: the paths of --sync.

    """
    name = program[0]
    if module or not (name.endswith(".py") or os.sep in name):
        return ""
    path = os.path.abspath(name)
    if not os.path.isfile(path):
        return f", nor here in {os.path.dirname(path)}{cure(name, path)}"
    if os.path.isabs(name):  # a synced file has another place
        return "; copy it there"
    return f"; add --sync {name}" if sync else f"; copy it there, or add --sync {name}"


def checked(check: Callable[[], T]) -> T:
    """What a check returns.

    Raises:
        LaunchError: it finds that something cannot be run.

    """
    try:
        return check()
    except Unusable as error:
        raise LaunchError(str(error), error.status) from None

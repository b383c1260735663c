"""PROGRAM and --python on this machine, looked for before anything is started."""

import os
import sys
from collections.abc import Callable
from typing import TypeVar

from mcjax_launch.errors import LaunchError
from mcjax_launch.job.job import Job
from mcjax_launch.protocol.program_check import Unusable, check_python_file, find_command

T = TypeVar("T")


def find_python(given: str | None) -> str:
    """The interpreter of the ranks on this machine, by a path or a name of the user's.

    Raises:
        LaunchError: there is no such command, or it is not executable.

    """
    if given is None:
        return sys.executable
    return _checked(lambda: find_command(given, os.getcwd(), _path(), "--python "))


def check_program(job: Job) -> None:
    """Look for PROGRAM where a rank on this machine would.

    Raises:
        LaunchError: it is not there, or cannot be run or read.

    """
    name = job.program[0]
    if not job.is_python:
        _checked(lambda: find_command(name, job.chdir, dict(job.env).get("PATH", _path())))
    elif not job.module:
        _checked(lambda: check_python_file(name, job.chdir))


def _path() -> str:
    return os.environ.get("PATH", os.defpath)


def _checked(check: Callable[[], T]) -> T:
    try:
        return check()
    except Unusable as error:
        raise LaunchError(str(error), error.status) from None

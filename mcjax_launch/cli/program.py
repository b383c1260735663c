"""PROGRAM on this machine, looked for before anything is started."""

import os
from collections.abc import Callable
from typing import TypeVar

from mcjax_launch.errors import LaunchError
from mcjax_launch.job.job import Job
from mcjax_launch.protocol.program_check import Unusable, check_python_file, find_command

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


def checked(check: Callable[[], T]) -> T:
    """What a check returns.

    Raises:
        LaunchError: it finds that something cannot be run.

    """
    try:
        return check()
    except Unusable as error:
        raise LaunchError(str(error), error.status) from None

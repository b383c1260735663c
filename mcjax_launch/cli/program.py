"""What can be known of PROGRAM and --python on this machine before anything runs."""

import os
import sys

from mcjax_launch.errors import LaunchError
from mcjax_launch.job.job import Job
from mcjax_launch.protocol import exit_status


def find_python(given: str | None) -> str:
    """The interpreter of the ranks on this machine, by a path or a name of the user's.

    Raises:
        LaunchError: there is no such command, or it is not executable.

    """
    if given is None:
        return sys.executable
    return _find_command(given, os.getcwd(), "--python ")


def check_program(job: Job) -> None:
    """Look for PROGRAM where a rank on this machine would.

    Raises:
        LaunchError: it is not there, or cannot be run or read.

    """
    if not job.module and not job.program[0].endswith(".py"):
        _find_command(job.program[0], job.chdir, path=dict(job.env).get("PATH"))
        return
    if not job.module:
        path = os.path.join(job.chdir, job.program[0])
        if not os.path.exists(path):
            raise LaunchError(
                f"{job.program[0]}: no such file in {job.chdir}", exit_status.NOT_FOUND
            )
        if not os.path.isfile(path) or not os.access(path, os.R_OK):
            raise LaunchError(f"{job.program[0]}: not a readable file", exit_status.NOT_EXECUTABLE)


def _find_command(name: str, chdir: str, option: str = "", path: str | None = None) -> str:
    """The path of a command as a rank would find it.

    Args:
        path: the PATH to look in, if not our own.

    Raises:
        LaunchError: there is none, or it is not executable.

    """
    if os.sep in name:
        paths = [os.path.join(chdir, name)]
    else:
        paths = [os.path.join(folder, name) for folder in _folders(path)]
    files = [file for file in paths if os.path.isfile(file)]
    for file in files:
        if os.access(file, os.X_OK):
            return file if option else name
    if any(os.path.isdir(folder) for folder in paths if os.sep in name):
        raise LaunchError(f"{option}{name}: is a directory", exit_status.NOT_EXECUTABLE)
    if files:
        hint = "" if option else f"; chmod +x it, or run it with its interpreter: bash {name}"
        raise LaunchError(f"{option}{name}: not executable{hint}", exit_status.NOT_EXECUTABLE)
    where = "no such file" if os.sep in name else "not found in PATH"
    if os.sep not in name and os.path.isfile(os.path.join(chdir, name)):
        where += f"; did you mean ./{name}?"
    raise LaunchError(f"{option}{name}: {where}", exit_status.NOT_FOUND)


def _folders(path: str | None) -> list[str]:
    return os.get_exec_path(None if path is None else {"PATH": path})

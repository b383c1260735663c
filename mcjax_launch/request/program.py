"""PROGRAM on this machine, looked for before anything is started."""

import functools
import os
from collections.abc import Callable, Sequence
from typing import TypeVar

from mcjax_launch.errors import LaunchError
from mcjax_launch.job.hosts import Host
from mcjax_launch.job.job import Job
from mcjax_launch.job.plan import ranks_of_hosts
from mcjax_launch.kernel.wire.program_check import Unusable, check_python_file, cure, find_command
from mcjax_launch.options.wrappers import commands

T = TypeVar("T")


def check_program(job: Job, hosts: Sequence[Host]) -> None:
    """Look for PROGRAM, and what it runs under, where a rank on this machine would.

    Args:
        job: of which some ranks run here.
        hosts: where it runs.

    Raises:
        LaunchError: it is not there, or cannot be run or read.

    """
    name = job.program[0]
    path = dict(job.env).get("PATH", os.environ.get("PATH", os.defpath))
    of_hosts = ranks_of_hosts(job, hosts) if job.wrappers else {}
    here = [rank for host, ranks in of_hosts.items() if host.is_local for rank in ranks]
    for wrapper in commands(job.wrappers, here):
        checked(functools.partial(find_command, wrapper, job.chdir, path, "--wrap "))
    if not job.is_python:
        checked(lambda: find_command(name, job.chdir, path))
    elif not job.module:
        checked(lambda: check_python_file(name, job.chdir))
    else:
        from mcjax_launch.request.module import check_module  # as only -m needs

        environ = {**os.environ, **dict(job.env)}
        checked(lambda: check_module(name, job.python, job.chdir, environ))


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

"""--preload auto: the choice of jobs for which modules are imported once."""

from collections.abc import Sequence

from mcjax_launch.features.preload.program import Unsuited, find_library
from mcjax_launch.job.hosts import Host
from mcjax_launch.job.job import Job
from mcjax_launch.options import features as declared

#: The modules that --preload auto imports.
MODULES = ("jax",)


def find_obstacle(job: Job) -> str:
    """Return why the ranks of a job cannot be forked; "" if they may be."""
    if not job.expects_hooks:
        return "PROGRAM is not a Python program with the hook"
    if job.wrappers:
        return "ranks run under --wrap"
    return "rank 0 reads --stdin" if declared.get(job, "stdin") else ""


def find_reason_against(job: Job, hosts: Sequence[Host]) -> str:
    """Return why a job with --preload auto does not import beforehand; "" if it may.

    PROGRAM's files are searched here if a host is this machine. Each host searches its own.

    Args:
        job: the job.
        hosts: the hosts that get ranks.

    """
    if job.processes_here <= len(hosts):
        return "no host has two ranks"
    if why := find_obstacle(job):
        return why
    is_here = any(host.is_local and not host.chdir for host in hosts)
    if is_here and job.is_python and not job.module:
        try:
            find_library((job.python, *job.program), job.chdir, {})
        except Unsuited as unsuited:
            return str(unsuited)
    return ""

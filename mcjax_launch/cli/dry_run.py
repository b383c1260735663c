"""--dry-run: the script that stands for a start, with what it needs of this machine."""

import os
import socket
from collections.abc import Sequence

import mcjax_launch
from mcjax_launch.job.describe import Here, dry_run
from mcjax_launch.job.hosts import Host
from mcjax_launch.job.job import Job
from mcjax_launch.protocol import gpus, rank_environ
from mcjax_launch.protocol.address import LOOPBACK


def script(job: Job, hosts: Sequence[Host]) -> str:
    """What would run, on which host.

    Args:
        job: what the user asked for.
        hosts: those that would get ranks.

    """
    hook = os.path.join(os.path.dirname(os.path.abspath(mcjax_launch.__file__)), "hook")
    environ = rank_environ.without_outer_job(os.environ)
    found = gpus.visible({**environ, **dict(job.env)})
    return dry_run(job, hosts, Here(dict(os.environ), _free_port(), hook, found))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])

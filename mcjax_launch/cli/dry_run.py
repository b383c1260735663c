"""--dry-run: what a start would run, with what is known of this machine."""

import os
from collections.abc import Sequence

from mcjax_launch.job.describe import Here, dry_run
from mcjax_launch.job.hosts import Host
from mcjax_launch.job.job import Job
from mcjax_launch.kernel.wire import gpus, rank_environ


def script(job: Job, hosts: Sequence[Host]) -> str:
    """What would run, on which host.

    Args:
        job: what the user asked for.
        hosts: those that would get ranks.

    """
    environ = rank_environ.without_outer_job(os.environ)
    found = gpus.visible({**environ, **dict(job.env)})
    return dry_run(job, hosts, Here(dict(os.environ), found))

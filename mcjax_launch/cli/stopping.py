"""--stop: the end of a detached job, as by Ctrl-C."""

from __future__ import annotations

from collections.abc import Callable

from mcjax_launch.detached.connection import open_connection
from mcjax_launch.detached.jobs import RUNNING, find, wait_until_settled
from mcjax_launch.detached.messages import StopJob


def stop(job_id: str, say: Callable[[str], object]) -> int:
    """End a job and wait until it has ended; return 0, the command's exit status.

    If the job has ended already, only a line about that is printed.

    Args:
        job_id: id of the detached job, or its first digits.
        say: prints a line.

    Raises:
        LaunchError: there is no such job, or it cannot be ended from here.

    """
    job = find(job_id)
    connection = open_connection(job, "stop")
    if connection is None:
        say(f"job {job.id} has already ended: {job.read_again().end}")
        return 0
    connection.send(StopJob())
    if job.state == RUNNING:
        say(f"job {job.id} is ending; --stop {job.id} again kills its ranks at once")
    else:  # the stop ends `EventStream.finish`
        say(f"job {job.id} has ended; its launcher waits no longer for the reader of --events")
    while connection.receive() is not None:
        pass
    connection.close()
    say(f"job {job.id}: {wait_until_settled(job).end}")
    return 0

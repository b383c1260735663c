"""--stop: the end of a detached job, as by Ctrl-C."""

from __future__ import annotations

from collections.abc import Callable

from mcjax_launch.detached.connection import Connection
from mcjax_launch.detached.jobs import RUNNING, DetachedJob, find, wait_until_settled
from mcjax_launch.detached.messages import StopJob
from mcjax_launch.errors import LaunchError
from mcjax_launch.wire import exit_status


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
    if job.state != RUNNING and not job.has_launcher:
        say(f"job {job.id} has already ended: {job.end}")
        return 0
    if not job.is_here:
        host = job.description.host
        raise LaunchError(
            f"job {job.id} runs on {host}: stop it there (ssh {host} mcjax-launch --stop {job.id})"
        )
    try:
        connection = Connection(job.folder)
    except OSError as error:
        job = DetachedJob(job.folder, job.description)
        if job.state != RUNNING:
            say(f"job {job.id} has already ended: {job.end}")
            return 0
        raise LaunchError(
            f"job {job.id}: its launcher does not answer: {error.strerror}; kill -KILL "
            f"{job.description.pid} ends it and its ranks",
            exit_status.FAILED,
        ) from None
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

"""Entry point of the launcher: runs a job on its hosts and returns the outcome."""

import gc
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mcjax_launch.errors import LaunchError
from mcjax_launch.job.hosts import Host
from mcjax_launch.job.job import Job
from mcjax_launch.journal.events import NO_EVENTS, Events
from mcjax_launch.journal.journal import Journal
from mcjax_launch.machine import system
from mcjax_launch.options import features as declared
from mcjax_launch.ranks import format_count
from mcjax_launch.transport.remote_commands import Transport

if TYPE_CHECKING:
    from mcjax_launch.journal.attempt import JobOutcome
    from mcjax_launch.launcher.front import Front


def run(
    job: Job,
    hosts: Sequence[Host],
    journal: Journal,
    *,
    events: Events = NO_EVENTS,
    front: "Front | None" = None,
) -> "JobOutcome":
    """Run a job, and return its outcome.

    Args:
        job: the job to run.
        hosts: hosts of the job; all of them get ranks.
        journal: facts of the job.
        events: the reader of the journal that writes events.
        front: the launcher's process; None to make it.

    Raises:
        LaunchError: the job could not be started.

    """
    transport = _prepare_transport(job, hosts)
    _check_limit(job, len(hosts))
    from mcjax_launch.launcher import restarts  # while the agent here starts

    front = front or make_own_front()
    front.events, front.journal = events, journal
    declared.call("begin", job, hosts, front)
    events.begin(front.loop, front.signals)
    return restarts.run(job, hosts, transport, front=front)


def _prepare_transport(job: Job, hosts: Sequence[Host]) -> Transport:
    """Return the transport that starts the agents."""
    transport = Transport(job, declared.list_for_hosts(job))
    transport.start_local(hosts)
    transport.allow_many_files()
    return transport


def make_own_front() -> "Front":
    """Return a new Front of this process, for a launcher that has the process to itself."""
    from mcjax_launch.launcher.front import make_front

    gc.freeze()  # imported modules stay
    gc.enable()
    return make_front()


def _check_limit(job: Job, hosts: int) -> None:
    """Check that the limit of open files allows all pipes and log files of this job.

    Raises:
        LaunchError: the limit is too low; nothing has been started on other hosts.

    """
    files = 0 if job.log_dir is None else 2 * job.processes_here
    if why := system.explain_file_limit(3 * hosts + files):
        raise LaunchError(f"{'--log-dir' if files else format_count(hosts, 'host')}: {why}")

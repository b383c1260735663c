"""A check from its beginning to its end: survey, job, judgement."""

import time
from collections.abc import Callable, Sequence

from mcjax_launch.check import sum_job
from mcjax_launch.check.found import Found, GlobalSum, HostFound
from mcjax_launch.check.judgement import why_no_sum
from mcjax_launch.check.survey import Survey
from mcjax_launch.job.hosts import Host
from mcjax_launch.job.job import Job
from mcjax_launch.launcher.front import Front, of_own_process
from mcjax_launch.ranks import counted
from mcjax_launch.transport.client import Transport


def run(job: Job, hosts: Sequence[Host], say: Callable[[str], object]) -> Found:
    """Find out all that can be found out.

    Args:
        job: what a plain run would start; its program does not matter.
        hosts: where.
        say: is called with what takes a while.

    Raises:
        Interrupted: the user has ended the check.
        LaunchError: the client that leads to the hosts is not there.

    """
    began = time.monotonic()
    transport = Transport(job.via, job.python, job.python_given, job.start_timeout)
    if any(host.is_local for host in hosts):
        transport.start_local()
    transport.allow_many_files()
    front = of_own_process()
    survey = Survey(job, hosts, transport, front)
    say(f"asking {counted(len(hosts), 'host')} ...")
    try:
        network = survey.look()
        why_not = why_no_sum(survey.hosts, network)
        if why_not:
            say("counting devices ...")
            survey.count_devices()
    finally:
        survey.end()
    found = survey.hosts
    total = GlobalSum(why_not=why_not)
    if not why_not:
        say(f"adding up the devices of {counted(job.num_processes, 'rank')} ...")
        total, found = _add(job, hosts, transport, front, found)
    seconds = {**survey.seconds, "all": time.monotonic() - began}
    return Found(hosts=found, network=network, total=total, seconds=seconds, on_cpu=job.uses_cpu)


def _add(
    job: Job,
    hosts: Sequence[Host],
    transport: Transport,
    front: Front,
    found: Sequence[HostFound],
) -> tuple[GlobalSum, tuple[HostFound, ...]]:
    """Run the sum; what came of it, and the hosts with their devices."""
    size = sum_job.size_for(found, job.cpu_devices or 1)
    total, devices = sum_job.run(sum_job.job_of_check(job), hosts, transport, size, front)
    return total, tuple(host.replaced(devices=devices.get(host.name, ())) for host in found)

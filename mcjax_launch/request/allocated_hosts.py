"""Hosts of the allocation that the launcher runs in."""

import socket
from collections.abc import Mapping

from mcjax_launch.errors import LaunchError
from mcjax_launch.job.allocation import check_alone
from mcjax_launch.job.hosts import Host, parse_file
from mcjax_launch.machine.known_schedulers import Scheduler
from mcjax_launch.ranks import format_count


def find_hosts(
    scheduler: Scheduler, environ: Mapping[str, str], slots: int | None, wanted: int = 0
) -> tuple[Host, ...]:
    """Return the hosts of the allocation that the launcher runs in.

    Args:
        scheduler: scheduler of the allocation.
        environ: variables of the launcher.
        slots: ranks on each host, from --procs-per-host; None if not given.
        wanted: number of ranks, which must not be more than the slots; 0 for the number of slots.

    Raises:
        LaunchError: the launcher runs at the wrong place, such as in each task of the job, or the
            allocation cannot be read or is too small.

    """
    if scheduler.files:
        hosts = _read_hosts(scheduler.files[0], environ, slots)
    else:
        from mcjax_launch.job import slurm

        hosts = slurm.find_hosts(environ, slots)
    there = sum(host.slots for host in hosts)
    if wanted > there:
        has = f"{scheduler.title}'s allocation has {format_count(there, 'slot')}"
        more = f"{has}; request more slots, or set --procs-per-host K"
        raise LaunchError(f"-n {wanted}: {explain_few_slots(scheduler, environ) or more}")
    return hosts


def explain_few_slots(scheduler: Scheduler, environ: Mapping[str, str]) -> str:
    """Return why a job may have too few slots, with the cure; "" if nothing is known."""
    count = environ.get("SLURM_HET_SIZE", "1")
    if scheduler.name != "slurm" or count == "1":
        return ""
    return (
        f"Slurm's heterogeneous job has {count} components, and only the first is used: "
        f"{environ['SLURM_JOB_NODELIST']}; --hosts names the hosts of all, reached by ssh"
    )


def _read_hosts(variable: str, environ: Mapping[str, str], slots: int | None) -> tuple[Host, ...]:
    """Return the hosts of a file: each line has a name and, unless it is a slot, their number."""
    check_alone(environ, "the job's script")
    path = environ[variable]
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = [words for line in file if (words := line.split())]
    except OSError as error:
        raise LaunchError(
            f"{variable}={path}: {error.strerror}: run mcjax-launch in the job's script, which has "
            "the file, not on a login node or from another of its hosts"
        ) from None
    counts = [(name, more[0] if more and more[0].isdecimal() else "1") for name, *more in lines]
    hosts = parse_file("\n".join(f"{name} slots={count}" for name, count in counts), variable, 1)
    own = socket.gethostname().lower()
    here = {own, own.partition(".")[0]}
    return tuple(
        host.copy_with(
            slots=slots or host.slots,
            here=host.name.lower() in here or host.name.lower().partition(".")[0] in here,
        )
        for host in hosts
    )

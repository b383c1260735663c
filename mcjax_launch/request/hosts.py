"""The hosts of a job: from a file, a list, an allocation, or this machine alone."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence

from mcjax_launch.errors import LaunchError
from mcjax_launch.job.hosts import LOCAL, Host, parse_file, parse_list
from mcjax_launch.machine import known_schedulers
from mcjax_launch.machine.known_schedulers import Scheduler
from mcjax_launch.options.options import Options
from mcjax_launch.ranks import format_count

# Variables of an MPI starter, which may have started several launchers.
_STARTED = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS")


def find_hosts(options: Options, environ: Mapping[str, str]) -> tuple[Host, ...]:
    """Return the hosts for this launcher's ranks.

    With --num-hosts that is this machine; else the hosts of --hosts, else those of a scheduler's
    allocation, else this machine.

    Raises:
        LaunchError: a hosts file or list cannot be read, options contradict each other, or the
            allocation does not suffice.

    """
    slots = options.procs_per_host or 1
    if options.num_hosts:
        return (Host(name=LOCAL, slots=count_ranks_here(options, options.num_hosts)),)
    if options.hosts is not None:
        hosts = _read(options.hosts, slots)
        return hosts if options.via else _mark_own(hosts)
    if scheduler := known_schedulers.find_scheduler(environ):
        return _find_allocated_hosts(options, environ, scheduler)
    count = options.num_processes or slots
    if any(map(environ.get, _STARTED)) and not options.no_hook:  # without it JAX may join them
        from mcjax_launch.job import allocation

        allocation.check_alone(environ, f"a shell, or add --hosts localhost:{count} for a job each")
    return (Host(name=LOCAL, slots=count),)


def _find_allocated_hosts(
    options: Options, environ: Mapping[str, str], scheduler: Scheduler
) -> tuple[Host, ...]:
    from mcjax_launch.job import allocation
    from mcjax_launch.request import allocated_hosts

    wanted, each = options.num_processes or 0, options.procs_per_host
    try:
        return allocated_hosts.find_hosts(scheduler, environ, each, wanted)
    except LaunchError as error:
        otherwise = allocation.advise_outside(scheduler, environ, wanted or each or 1)
        raise LaunchError(f"{error}; {otherwise}" if otherwise else str(error)) from None


def describe_unused_way(options: Options, hosts: Sequence[Host]) -> Iterator[str]:
    """Yield a line if --via is not used for a host, because it is this machine by its name."""
    if options.via and options.hosts is not None and any(host.is_local for host in hosts):
        yield f"{LOCAL} is this machine, reached without --via; 127.0.0.1 is reached by it"


def describe_allocation(
    options: Options, environ: Mapping[str, str], hosts: Sequence[Host], via: str
) -> Iterator[str]:
    """Yield lines on a scheduler's allocation: its hosts (if --verbose), and a lack of slots."""
    scheduler, why = known_schedulers.choose_scheduler(environ)
    if scheduler is None or options.hosts is not None or options.num_hosts:
        return
    from mcjax_launch.request.allocated_hosts import explain_few_slots

    if options.verbose:
        if why:
            yield why
        where = f"{format_count(len(hosts), 'host')} of {scheduler.title}'s allocation"
        elsewhere = [host for host in hosts if not host.is_local]
        yield f"{where}, reached by {via}" if elsewhere else f"{where}: this machine"
    lacks = explain_few_slots(scheduler, environ)
    if lacks and not options.quiet and not options.num_processes:
        yield lacks


def choose_via(options: Options, environ: Mapping[str, str]) -> str:
    """Return the value of --via to use if it is not given: a scheduler's client, or ssh."""
    scheduler = known_schedulers.find_scheduler(environ)
    return (scheduler.client if scheduler and options.hosts is None else "") or "ssh"


def _read(given: str | tuple[str, ...], slots: int) -> tuple[Host, ...]:
    if not isinstance(given, str):
        return parse_file("\n".join(given), "hosts", slots)
    from mcjax_launch.request import text_files  # local jobs need none

    if given == "-":
        return parse_file(text_files.read_text(0, "standard input"), "standard input", slots)
    if os.path.exists(given) and not os.path.isdir(given):
        return parse_file(text_files.read_file(given, "--hosts"), given, slots)
    if os.sep in given or given.endswith(".txt"):
        what = "a directory, not a file" if os.path.isdir(given) else "no such file"
        raise LaunchError(f"--hosts {given}: {what}{_suggest_file(given)}")
    return parse_list(given, slots)


def _suggest_file(given: str) -> str:
    """Return "; did you mean ...?" with a file of a similar name in the same folder; "" if none."""
    import difflib

    folder, name = os.path.split(given)
    try:
        names = os.listdir(folder or os.curdir)
    except OSError:
        return ""
    near = difflib.get_close_matches(name, names, 1)
    return f"; did you mean {os.path.join(folder, near[0])}?" if near else ""


def _mark_own(hosts: Sequence[Host]) -> tuple[Host, ...]:
    """Return the hosts; this machine's own name, without user and port, needs no ssh."""
    own = os.uname().nodename.lower()
    names = (own, own.partition(".")[0])
    return tuple(
        host.copy_with(here=True) if host.login.lower() in names and host.port is None else host
        for host in hosts
    )


def count_ranks_here(options: Options, num_hosts: int) -> int:
    """Return the number of ranks that this launcher starts, if there are `num_hosts` launchers.

    Raises:
        LaunchError: --host-rank or --coordinator is missing, or options contradict each other.

    """
    whole = options.num_processes
    if options.hosts is not None:
        raise LaunchError("--num-hosts: each launcher runs its own host's ranks; leave out --hosts")
    if not re.search(r"[^:]:[0-9]+$", options.coordinator or ""):
        raise LaunchError("--num-hosts needs --coordinator HOST:PORT, the same for all launchers")
    if options.max_restarts:
        raise LaunchError(
            "--num-hosts: one launcher cannot restart the whole job; leave --max-restarts to the "
            "scheduler"
        )
    if options.host_rank is None:
        raise LaunchError("--num-hosts needs --host-rank I, or JOB_COMPLETION_INDEX")
    if options.host_rank >= num_hosts:
        raise LaunchError(f"--host-rank {options.host_rank}: must be 0 to {num_hosts - 1}")
    if whole is None:
        return options.procs_per_host or 1
    if whole % num_hosts:
        raise LaunchError(f"-n {whole}: not a multiple of --num-hosts {num_hosts}")
    return whole // num_hosts

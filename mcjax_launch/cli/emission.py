"""--emit: from the options to the script or manifest of a scheduler."""

from mcjax_launch.errors import LaunchError
from mcjax_launch.job.command_line import CommandLine
from mcjax_launch.job.job import GRACE_S
from mcjax_launch.options.options import RELAYED, Options
from mcjax_launch.ranks import counted
from mcjax_launch.schedulers import emit
from mcjax_launch.schedulers.submission import Submission, default_name


def emission(options: Options, command_line: CommandLine) -> str:
    """What a scheduler needs to run this command line.

    Raises:
        LaunchError: an option is missing, or does not go with --emit.

    """
    assert options.emit is not None
    if not options.program:
        raise LaunchError("--emit: no PROGRAM; add the PROGRAM to run")
    if options.hosts is not None:
        raise LaunchError(
            "--emit: the scheduler chooses the hosts; say how many with --num-hosts instead"
        )
    if options.gpus_per_process == "all":
        raise LaunchError(
            f"--emit {options.emit}: --gpus-per-process all: say how many to ask for, as a number"
        )
    hosts = options.num_hosts or 1
    ranks = ranks_per_host(hosts, options.num_processes, options.procs_per_host)
    submission = Submission(
        kind=options.emit,
        command_line=command_line,
        name=options.name or default_name(options.program[0]),
        hosts=hosts,
        ranks=ranks,
        gpus=(options.gpus_per_process or 0) * ranks,
        timeout=options.timeout,
        start_timeout=options.start_timeout,
        grace=GRACE_S["TERM"] if options.grace is None else options.grace,
        restarts=options.max_restarts,
        can_shrink=options.min_hosts is not None,
        relay=options.coordinator == RELAYED,
        stdin=bool(options.stdin),
        pdb=bool(options.pdb),
        sync=options.sync,
        report=options.report,
        namespace=options.namespace,
        tpu=options.tpu,
        slices=options.slices if isinstance(options.slices, int) else 1,
        image=options.image,
        engine_options=options.engine_option,
    )
    return emit(submission)


def ranks_per_host(hosts: int, whole: int | None, each: int | None) -> int:
    """How many ranks each host gets.

    Args:
        hosts: how many.
        whole: ranks of the whole job, if the user says so.
        each: ranks of each host, if the user says so.

    Raises:
        LaunchError: hosts and ranks per host do not make the ranks of the whole job.

    """
    ranks = each or (whole or hosts) // hosts
    if whole is not None and whole != hosts * ranks:
        raise LaunchError(
            f"--emit: -n {whole} does not fit {counted(hosts, 'host')} with "
            f"{counted(ranks, 'rank')} each; set --num-hosts and --procs-per-host"
        )
    return ranks

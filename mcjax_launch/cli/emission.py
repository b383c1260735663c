"""--emit: from the options to the script or manifest of a scheduler."""

import click

from mcjax_launch.cli.given_options import command_line
from mcjax_launch.errors import LaunchError
from mcjax_launch.request.options import RELAYED, Options
from mcjax_launch.schedulers.emit import Submission, emit


def emission(options: Options, context: click.Context) -> str:
    """What a scheduler needs to run the command line of this context.

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
    if options.stdin and options.emit != "slurm":
        raise LaunchError(f"--emit {options.emit}: pods have no standard input; leave out --stdin")
    relay = options.coordinator == RELAYED
    if relay and options.emit != "slurm":
        raise LaunchError(
            f"--emit {options.emit}: each pod has its own launcher; leave out --coordinator ssh"
        )
    submission = Submission(
        command_line=command_line(context, options),
        num_hosts=options.num_hosts or 1,
        num_processes=options.num_processes,
        procs_per_host=options.procs_per_host,
        gpus_per_process=_gpus(options),
        timeout=options.timeout,
        grace=options.grace,
        max_restarts=options.max_restarts,
        min_hosts=options.min_hosts,
        relay=relay,
        name=options.name,
        namespace=options.namespace,
        image=options.image,
        sbatch_options=options.engine_option,
    )
    return emit(options.emit, submission)


def _gpus(options: Options) -> int:
    """How many each rank is to have of those that the scheduler is asked for."""
    if options.gpus_per_process == "all":
        raise LaunchError(
            f"--emit {options.emit}: --gpus-per-process all: say how many to ask for, as a number"
        )
    return options.gpus_per_process or 0

"""--emit: from the options to the script or manifest of a scheduler."""

from os.path import splitext

import click

from mcjax_launch.cli.given_options import command_line
from mcjax_launch.errors import LaunchError
from mcjax_launch.options.options import RELAYED, Options
from mcjax_launch.schedulers.emit import Submission, emit

_EACH_ITS_OWN = "each pod has its own launcher"


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
    if options.emit != "slurm":
        _check_for_pods(options)
    submission = Submission(
        command_line=command_line(context, options),
        num_hosts=options.num_hosts or 1,
        num_processes=options.num_processes,
        procs_per_host=options.procs_per_host,
        gpus_per_process=_gpus(options),
        timeout=options.timeout,
        start_timeout=options.start_timeout,
        grace=options.grace,
        max_restarts=options.max_restarts,
        min_hosts=options.min_hosts,
        relay=options.coordinator == RELAYED,
        name=options.name,
        namespace=options.namespace,
        tpu=options.tpu,
        slices=options.slices if isinstance(options.slices, int) else 1,
        image=options.image,
        engine_options=options.engine_option,
    )
    return emit(options.emit, submission)


def _gpus(options: Options) -> int:
    """How many each rank is to have of those that the scheduler is asked for."""
    if options.gpus_per_process == "all":
        raise LaunchError(
            f"--emit {options.emit}: --gpus-per-process all: say how many to ask for, as a number"
        )
    return options.gpus_per_process or 0


def _check_for_pods(options: Options) -> None:
    """Refuse what a launcher in a pod would do in vain, or not at all.

    Raises:
        LaunchError: there is such.

    """
    for wrong, why in (
        (options.stdin, "pods have no standard input; leave out --stdin"),
        (options.pdb, "pods have no terminal; leave out --pdb"),
        (options.coordinator == RELAYED, f"{_EACH_ITS_OWN}; leave out --coordinator ssh"),
        (
            options.sync,
            "pods have no files of this machine; leave out --sync, and put "
            f"{', '.join(options.sync)} into the image or on a volume",
        ),
    ):
        if wrong:
            raise LaunchError(f"--emit {options.emit}: {why}")
    path, several = options.report, (options.num_hosts or 1) > 1
    if path is not None and several and "{host}" not in path:
        raise LaunchError(
            f"--emit {options.emit}: {_EACH_ITS_OWN}, and writes a file of its own; name them "
            f"with {{host}}, on a volume: --report '/shared/{{host}}{splitext(path)[1]}'"
        )

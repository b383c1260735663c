"""Options that say nothing without another one; pure.

Only what stands on the command line is refused: a variable may be set for many command lines.
"""

from collections.abc import Collection, Mapping

import click
from click.core import ParameterSource

from mcjax_launch.cli.options import Options
from mcjax_launch.errors import LaunchError
from mcjax_launch.schedulers import slurm

_FOR_EMIT = ("image", "name", "namespace", "engine_option")


def check(options: Options, context: click.Context, environ: Mapping[str, str]) -> None:
    """Refuse options that would be silently ignored.

    Args:
        options: all of them.
        context: click's, which knows where each comes from.
        environ: of this process.

    Raises:
        LaunchError: there is one.

    """
    given = {name for name in context.params if _is_on_command_line(name, context)}
    lone = [f"--{name.replace('_', '-')}" for name in _FOR_EMIT if name in given]
    if lone and options.emit is None:
        raise LaunchError(f"{lone[0]} needs --emit slurm, --emit jobset or --emit job")
    if "profile_after" in given and options.profile is None:
        raise LaunchError("--profile-after needs --profile DIR")
    if "min_hosts" in given and not options.max_restarts:
        raise LaunchError("--min-hosts needs --max-restarts N")
    if options.emit is not None:
        return
    if "host_rank" in given and options.num_hosts is None:
        raise LaunchError("--host-rank needs --num-hosts N and --coordinator HOST:PORT")
    if {"quiet", "verbose"} <= given:
        raise LaunchError("-q cannot be combined with -v")
    if options.hosts is None and not slurm.inside(environ):
        _check_without_hosts(options, given)


def _is_on_command_line(name: str, context: click.Context) -> bool:
    return context.get_parameter_source(name) is ParameterSource.COMMANDLINE


def _check_without_hosts(options: Options, given: Collection[str]) -> None:
    """Refuse what is for other hosts where there are none."""
    if "via" in given:
        raise LaunchError(f"--via {options.via}: no hosts to reach; name them with --hosts")
    whole, each = options.num_processes, options.procs_per_host
    alone = options.num_hosts is None and "procs_per_host" in given
    if alone and whole is not None and each is not None and whole > each:
        raise LaunchError(
            f"--procs-per-host {each}: this machine alone cannot take -n {whole}; add --hosts, or "
            "leave it out"
        )

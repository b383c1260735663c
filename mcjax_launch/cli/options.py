"""What click must know of each option, in the groups of --help; values: `request/options.py`."""

from __future__ import annotations

from typing import Any

import click

from mcjax_launch import __version__
from mcjax_launch.cli.param_types import (
    Duration,
    Gpus,
    HostRank,
    Limit,
    Modules,
    Ranks,
    Slices,
    SomeRanks,
    WholeNumber,
    Wrap,
)
from mcjax_launch.protocol.schedulers import KINDS
from mcjax_launch.ranks import MOST_RANKS
from mcjax_launch.request.kinds import BIND_CORES, COLORS, ENV_STYLES, HIGHEST_PORT


class Option(click.Option):
    """What click must know of an option.

    Args:
        names: as the user writes it.
        default_text: what --help shows as its default; empty to show none.
        settings: see click.Option.

    """

    def __init__(self, *names: str, default_text: str = "", **settings: Any) -> None:
        text = settings.pop("help", None)
        super().__init__(list(names), **settings)
        self.help = text  # not by way of click, which would import `inspect` to clean it
        self.default_text = default_text

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        record = super().get_help_record(ctx)
        if record is None or not self.default_text:
            return record
        return record[0], f"{self.help}  [default: {self.default_text}]"


def _flag(*names: str, help: str) -> Option:  # noqa: A002  click's word
    return Option(*names, is_flag=True, help=help)


def _show_version(context: click.Context, _: click.Parameter, asked: bool) -> None:
    if asked and not context.resilient_parsing:
        click.echo(f"mcjax-launch {__version__}")
        context.exit()


def _show_help(context: click.Context, _: click.Parameter, asked: bool) -> None:
    if asked and not context.resilient_parsing:
        click.echo(context.get_help(), color=context.color)
        context.exit()


# Of ranks, and of what each has.
_ONE_OR_MORE = WholeNumber(1, MOST_RANKS)
_NONE_OR_MORE = WholeNumber(0, 10**9)
_CHIPS = WholeNumber(1, 1024)
_PORT = WholeNumber(1, HIGHEST_PORT)
_DURATION = Duration()
_LIMIT = Limit()
_NO_LIMIT = "no limit"

GROUPS: dict[str, tuple[Option, ...]] = {
    "Job": (
        Option(
            "-n",
            "-np",
            "--num-processes",
            type=_ONE_OR_MORE,
            metavar="N",
            default_text="the hosts' slots; 1 locally",
            help="Number of ranks in the whole job.",
        ),
        _flag("-m", "--module", help="PROGRAM is the name of a Python module."),
        Option(
            "--python",
            metavar="PATH",
            default_text="the active environment's, else one with jax",
            help="Python interpreter of the ranks.",
        ),
        Option(
            "-C",
            "--chdir",
            metavar="DIR",
            default_text="the current directory",
            help="Working directory of the ranks.",
        ),
        Option(
            "-x",
            "--env",
            multiple=True,
            metavar="NAME[=VALUE]",
            help="Set a variable in every rank; without a value, pass on the launcher's. "
            "Repeatable.",
        ),
        Option(
            "--env-style",
            type=click.Choice(ENV_STYLES),
            metavar="torch",
            help="Also set RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT and others.",
        ),
        Option(
            "--stdin",
            type=SomeRanks(),
            metavar="RANKS|all|none",
            default_text="none",
            help="Hand the launcher's standard input to these ranks, each all of it.",
        ),
        Option(
            "--wrap",
            type=Wrap(),
            multiple=True,
            metavar="[RANKS:]COMMAND",
            help="Run ranks under a command such as 'strace -f' or '0:gdb -ex run --args'. "
            "Repeatable.",
        ),
        _flag("--no-hook", help="Only set variables; load no hook into the ranks' Python."),
        Option(
            "--preload",
            type=Modules(),
            default=(),
            metavar="MODULES",
            help="Import these modules once per host and fork the ranks from there: jax,flax.",
        ),
    ),
    "Devices": (
        Option(
            "-d",
            "--cpu-devices",
            type=_ONE_OR_MORE,
            metavar="K",
            help="Give each rank K CPU devices, and set JAX_PLATFORMS=cpu.",
        ),
        Option(
            "--gpus-per-process",
            type=Gpus(),
            metavar="K|all",
            default_text="an equal share",
            help="Give each rank K GPUs of its own, or all of its host's.",
        ),
        Option(
            "--tpu-chips-per-process",
            type=_CHIPS,
            metavar="K",
            help="Give each rank K TPU chips of its own, on one host.",
        ),
        Option(
            "--slices",
            type=Slices(),
            default="auto",
            metavar="auto|one|host|K",
            default_text="auto",
            help="What JAX takes for slices: one, one per host, or K of equal size; auto: CPU "
            "devices are one, GPUs and TPUs as JAX finds them.",
        ),
        _flag(
            "--cpu-transfers",
            help="Allow jax.device_put between processes on CPU (experimental in JAX).",
        ),
        Option(
            "--bind-cores",
            type=click.Choice(BIND_CORES),
            metavar="auto|on|off",
            default="auto",
            default_text="auto",
            help="Bind each rank to its own share of the host's cores; auto: to those next to its "
            "GPUs, where that is known.",
        ),
    ),
    "Hosts": (
        Option(
            "--hosts",
            metavar="FILE|LIST|-",
            default_text="Slurm's allocation, or this machine",
            help="Hosts to run on: a hosts file, a list such as a,b,c, or - for standard input.",
        ),
        Option(
            "--procs-per-host",
            type=_ONE_OR_MORE,
            metavar="K",
            default_text="1; Slurm's tasks per node in an allocation",
            help="Ranks per host without slots=.",
        ),
        Option(
            "--via",
            metavar="COMMAND",
            default_text="ssh; srun in a Slurm allocation",
            help="How to reach a host: ssh, srun, or a template such as 'ssh -F cfg {host}'.",
        ),
        Option(
            "--sync",
            multiple=True,
            metavar="PATH",
            help="Copy a file or directory to every host and run there. Repeatable.",
        ),
        Option(
            "--coordinator",
            metavar="HOST[:PORT]|ssh",
            default_text="rank 0's host, a free port",
            help="Address of JAX's coordinator; ssh: reach it over the connections to the hosts.",
        ),
        Option(
            "--num-hosts",
            type=_ONE_OR_MORE,
            metavar="N",
            help="Number of hosts when a scheduler starts one launcher on each (needs "
            "--coordinator); with --emit, the number of hosts to request.",
        ),
        Option(
            "--host-rank",
            type=HostRank(),
            envvar=["MCJAX_HOST_RANK", "JOB_COMPLETION_INDEX"],
            metavar="I",
            default_text="$JOB_COMPLETION_INDEX",
            help="Which of these launchers this one is, counted from 0.",
        ),
    ),
    "Output": (
        Option(
            "--log-dir",
            metavar="DIR",
            help="Write each rank's complete output to DIR/<rank>.out and DIR/<rank>.err.",
        ),
        Option(
            "--show",
            type=Ranks(),
            metavar="RANKS",
            default_text="all",
            help="Show the output of these ranks only.",
        ),
        _flag("--collapse", help="Merge equal lines of several ranks into one: [0-7] text."),
        _flag("--timestamps", help="Prefix each line with the time of day."),
        _flag("--no-prefix", help="Do not prefix lines with their rank."),
        Option(
            "--color",
            type=click.Choice(COLORS),
            metavar="auto|always|never",
            default="auto",
            default_text="auto",
            help="Color each rank's prefix; auto means on a terminal only.",
        ),
        _flag("-q", "--quiet", help="Print only errors, warnings and the summary."),
        _flag(
            "-v", "--verbose", help="Print each step of the launcher and all of JAX's log lines."
        ),
        _flag(
            "--status", help="Show how the job comes along, on a terminal, while ranks are silent."
        ),
        Option(
            "--github",
            type=click.Choice(["auto", "always", "never"]),
            metavar="auto|always|never",
            default="auto",
            default_text="auto",
            help="Annotate the root cause, for GitHub Actions; auto means there only.",
        ),
    ),
    "Limits and restarts": (
        Option(
            "--timeout",
            type=_LIMIT,
            metavar="D",
            default_text=_NO_LIMIT,
            help="Stop the job after D (exit status 124).",
        ),
        Option(
            "--start-timeout",
            type=_LIMIT,
            metavar="D",
            default_text=_NO_LIMIT,
            help="Fail if not all ranks are through initialize() after D (exit status 124).",
        ),
        Option(
            "--stall-timeout",
            type=_LIMIT,
            metavar="D",
            default_text=_NO_LIMIT,
            help="Stop the job when no rank has printed, computed or compiled for D (exit status "
            "124): on accelerators longer than the longest silent step.",
        ),
        Option(
            "--grace",
            type=_DURATION,
            metavar="D",
            default_text="2s after a failure, 5s after INT, 30s after TERM or HUP",
            help="Time that ranks get to exit before they are killed.",
        ),
        Option(
            "--max-restarts",
            type=_NONE_OR_MORE,
            default=0,
            metavar="N",
            default_text="0",
            help="Restart the whole job after a failure, at most N times.",
        ),
        Option(
            "--min-hosts",
            type=_ONE_OR_MORE,
            metavar="N",
            default_text="all hosts",
            help="Restart without the hosts that were lost if at least N are left.",
        ),
    ),
    "Diagnosis": (
        Option(
            "--pdb",
            type=SomeRanks(),
            metavar="[RANKS]",
            help="Open a debugger where an exception ends one of these ranks, by default any.",
        ),
        Option(
            "--debugpy",
            type=_PORT,
            metavar="PORT",
            help="Have each rank wait for an IDE's debugger at PORT + process id of its host.",
        ),
        _flag(
            "--verify-spmd",
            help="Stop the job before ranks run different compiled programs (exit status 1).",
        ),
        Option(
            "--profile",
            metavar="DIR",
            help="Trace all ranks with JAX's profiler for the same 5 s, into DIR; SIGPROF: again.",
        ),
        Option(
            "--profile-after",
            type=_DURATION,
            metavar="D",
            default="10s",
            default_text="10s",
            help="Begin the profile D after initialize().",
        ),
        Option(
            "--report", metavar="FILE", help="Write a record of the run to FILE (.json or .html)."
        ),
        _flag(
            "--check",
            help="Run no PROGRAM: find out whether a job would work on these hosts.",
        ),
        _flag("--dry-run", help="Print each rank's host, command and variables; start nothing."),
    ),
    "Batch scripts and manifests": (
        Option(
            "--emit",
            type=click.Choice([*KINDS]),
            metavar="|".join(KINDS),
            help="Print a batch script or manifest that runs this job; start nothing.",
        ),
        Option(
            "--image",
            metavar="IMAGE",
            help="Container image with mcjax-launch and JAX (jobset and job need one).",
        ),
        Option(
            "--name",
            metavar="NAME",
            default_text="PROGRAM's name",
            help="Name of the job.",
        ),
        Option("--namespace", metavar="NAME", help="Kubernetes namespace of the job."),
        Option(
            "--tpu",
            metavar="TYPE:TOPOLOGY",
            help="TPU slice to request from GKE, as in tpu-v6e-slice:4x4; --slices K: K of them.",
        ),
        Option(
            "--engine-option",
            multiple=True,
            metavar="PATH=VALUE",
            help="Change the manifest, as in pod.nodeSelector.disk=ssd; for Slurm, add an #SBATCH "
            "option, such as --partition=gpu. Repeatable.",
        ),
    ),
    "Other": (
        Option(
            "--version",
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_show_version,
            help="Show the version and exit.",
        ),
        # click's own would be made with a look at the user's language, at every start.
        Option(
            "-h",
            "--help",
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_show_help,
            help="Show this message and exit.",
        ),
    ),
}

PROGRAM = click.Argument(["program"], nargs=-1, type=click.UNPROCESSED, metavar="PROGRAM [ARGS]...")

"""Declarations of all options, for the command line and for the API's keywords."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from mcjax_launch.options import features, kinds
from mcjax_launch.options.option import TERMINAL, OptionGroup, declare_flag, declare_option

#: Defaults of --grace, in seconds between asking ranks to exit and killing them, by the cause.
GRACE_S = {"failure": 2.0, "INT": 5.0, "TERM": 30.0, "HUP": 30.0, "save": 0.5}

_NO_LIMIT = "no limit"


class JobOptions(
    OptionGroup,
    title="Job",
    example=(
        "A module in four ranks, with a variable and an argument of each rank's own:",
        "mcjax-launch -n 4 -x SEED=1 -m package.train --shard {process_id}",
    ),
    kw_only=True,
):
    """Options on the program, its ranks and their environment."""

    num_processes: int | None = declare_option(
        kinds.ONE_OR_MORE,
        short=("-n", "-np"),
        keyword="processes",
        shown="the hosts' slots; 1 locally",
        help="Ranks (processes) in the whole job, on all hosts together; each runs PROGRAM, and "
        "all join one JAX job.",
        is_common=True,
    )
    module: bool = declare_flag(
        "PROGRAM is the name of a Python module, run as `python -m` does: -m pytest tests.",
        short=("-m",),
        in_project=False,
        is_common=True,
    )
    python: str | None = declare_option(
        kinds.FILE,
        metavar="PATH",
        shown="the active environment's, else one with jax",
        help="Python interpreter of the ranks, such as a virtual environment's bin/python; the "
        "same path on every host.",
        decides_what_runs=True,
        is_common=True,
    )
    chdir: str | None = declare_option(
        kinds.FOLDER,
        short=("-C",),
        shown="the current directory",
        help="Working directory of the ranks on every host, for a PROGRAM that opens files by "
        "relative paths.",
        is_common=True,
    )
    env: tuple[str, ...] = declare_option(
        kinds.VARIABLES,
        short=("-x",),
        default=(),
        repeats=True,
        help="Set a variable in every rank; without a value pass on the launcher's, by a pattern "
        "('NCCL_*') several. Repeatable.",
        is_common=True,
    )
    env_file: tuple[str, ...] = declare_option(
        kinds.PATHS,
        metavar="FILE",
        default=(),
        repeats=True,
        help="Set the variables of a file in every rank, one NAME=VALUE a line. Repeatable.",
    )
    env_style: Literal["torch"] | None = declare_option(
        kinds.make_choice_kind("torch"),
        help="Also set RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT and others, for "
        "programs that were written for torchrun.",
    )
    wrap: tuple[str, ...] = declare_option(
        kinds.WRAPPERS,
        default=(),
        repeats=True,
        separator="\n",  # a command has spaces
        decides_what_runs=True,
        help="Run ranks under a command such as 'strace -f' or '0:gdb -ex run --args'. Repeatable.",
    )
    no_hook: bool = declare_flag(
        "Only set variables: load no hook into the ranks' Python, for programs that it disturbs; "
        "failures are explained less.",
    )


class DeviceOptions(
    OptionGroup,
    title="Devices",
    example=(
        "Four ranks on this machine, each with two CPU devices:",
        "mcjax-launch -n 4 -d 2 train.py --steps 100",
    ),
    kw_only=True,
):
    """Options on each rank's share of its host: devices, cores and priority."""

    cpu_devices: int | None = declare_option(
        kinds.ONE_OR_MORE,
        metavar="K",
        short=("-d",),
        excludes=("--gpus-per-process: JAX computes on one of them",),
        help="Give each rank K CPU devices and set JAX_PLATFORMS=cpu, to try a program without "
        "accelerators.",
        is_common=True,
    )
    gpus_per_process: int | Literal["all"] | None = declare_option(
        kinds.GPUS,
        shown="an equal share of its host's",
        help="Give each rank K GPUs of its own, or all of its host's.",
        is_common=True,
    )
    tpu_chips_per_process: int | None = declare_option(
        kinds.make_number_kind(1, 1024, "K"),
        excludes=("-d",),
        help="Give each rank K TPU chips of its own, on one host.",
    )
    slices: Literal["auto", "one", "host"] | int = declare_option(
        kinds.SLICES,
        default="auto",
        excludes=("--no-hook",),
        help="Slices that JAX sees: one, one per host, or K equal; auto: one on CPU, else as JAX "
        "finds them.",
    )
    cpu_transfers: bool = declare_flag(
        "Allow jax.device_put between processes on CPU devices, as programs for accelerators use "
        "it (experimental in JAX).",
    )
    bind_cores: Literal["auto", "on", "off"] = declare_option(
        kinds.make_choice_kind("auto", "on", "off"),
        default="auto",
        help="Bind each rank to its own share of the host's cores; auto: to those next to its "
        "GPUs.",
    )


class HostOptions(
    OptionGroup,
    title="Hosts",
    example=(
        "Eight ranks on each of the hosts in a file, with their output in logs/:",
        "mcjax-launch --hosts hosts.txt --procs-per-host 8 --log-dir logs train.py",
    ),
    kw_only=True,
):
    """Options on the hosts of the ranks and the ways to reach them."""

    hosts: str | tuple[str, ...] | None = declare_option(  # several: the lines of a hosts file
        kinds.HOSTS,
        once=True,
        shown="a scheduler's allocation, or this machine",
        decides_what_runs=True,
        help="Hosts to run on: a hosts file, a list such as a,b,c, or - for standard input.",
        is_common=True,
    )
    procs_per_host: int | None = declare_option(
        kinds.ONE_OR_MORE,
        metavar="K",
        shown="1; in an allocation what the scheduler says",
        help="Ranks on each host that has no number of its own (a:2, or slots=2 in a hosts file).",
        is_common=True,
    )
    via: str | None = declare_option(
        kinds.VIA,
        shown="ssh; in an allocation of Slurm srun",
        decides_what_runs=True,
        help="How to reach a host: ssh, srun, or a template such as 'ssh -F cfg {host}'.",
    )
    sync: tuple[str, ...] = declare_option(
        kinds.PATHS,
        default=(),
        repeats=True,
        help="Copy a file or directory to every host and run there. Repeatable.",
        is_common=True,
    )
    no_host_cache: bool = declare_flag(
        "Keep nothing on the hosts that would make the next start faster."
    )
    coordinator: str | None = declare_option(
        kinds.COORDINATOR,
        shown="rank 0's host, a free port",
        help="Address of JAX's coordinator, HOST:PORT, where ranks cannot reach the address that "
        "is chosen by itself.",
    )
    num_hosts: int | None = declare_option(
        kinds.ONE_OR_MORE,
        in_project=False,
        help="Number of hosts; a scheduler starts a launcher on each (needs --coordinator).",
    )
    host_rank: int | None = declare_option(
        kinds.HOST_RANK,
        in_project=False,
        variable="JOB_COMPLETION_INDEX",
        shown="$JOB_COMPLETION_INDEX",
        help="Number of this launcher's host, counted from 0, where a scheduler starts a launcher "
        "on each of --num-hosts.",
    )


class OutputOptions(
    OptionGroup,
    title="Output",
    example=(
        "All output in files, rank 0's also here, and a status row for each rank:",
        "mcjax-launch -n 4 --log-dir logs --show 0 --status=table train.py",
    ),
    kw_only=True,
):
    """Options on the output of ranks and launcher."""

    log_dir: str | None = declare_option(
        kinds.FOLDER,
        once=True,
        help="Write each rank's complete output to DIR/<rank>.out and DIR/<rank>.err, also of "
        "ranks that are not shown.",
        is_common=True,
    )
    show: frozenset[int] | None = declare_option(
        kinds.RANKS,
        once=True,
        shown="all",
        help="Show the output of these ranks only (0, or 0,4-7); failures of all ranks are still "
        "explained.",
    )
    collapse: Literal["always", "auto", "never"] = declare_option(
        kinds.make_choice_kind("always", "auto", "never"),
        default="auto",
        metavar="[always|auto|never]",
        help="Show equal lines of several ranks once: [0-7] text; auto: on a terminal.",
    )
    timestamps: bool = declare_flag(
        "Prefix each line of output with the time of day, to see which rank was slow."
    )
    no_prefix: bool = declare_flag(
        "Do not prefix lines with their rank, for output that another program reads."
    )
    color: Literal["auto", "always", "never"] = declare_option(
        kinds.make_choice_kind("auto", "always", "never"),
        default="auto",
        help="Color each rank's prefix, so that ranks are told apart at a glance; auto: on a "
        "terminal.",
    )
    quiet: bool = declare_flag(
        "Of the launcher's own lines, print only errors, warnings and the summary.",
        short=("-q",),
        is_common=True,
    )
    verbose: bool = declare_flag(
        "Print each step of the launcher and all of JAX's log lines.", short=("-v",), is_common=True
    )
    status: Literal["line", "table"] | None = declare_option(
        kinds.make_choice_kind("line", "table"),
        metavar="[line|table]",
        only_command=TERMINAL,
        help="Show progress in the terminal's last row, or in one row per rank.",
        is_common=True,
    )


class LimitOptions(
    OptionGroup,
    title="Limits and restarts",
    example=(
        "End a job after ten minutes without progress; restart it up to three times:",
        "mcjax-launch -n 4 --stall-timeout 10m --max-restarts 3 train.py",
    ),
    kw_only=True,
):
    """Options on time limits, failures and restarts. Durations are in seconds."""

    timeout: float | None = declare_option(
        kinds.LIMIT,
        shown=_NO_LIMIT,
        help="Stop the job after D with all ranks' stacks and exit status 124, so that nothing "
        "runs for ever.",
        is_common=True,
    )
    start_timeout: float | None = declare_option(
        kinds.LIMIT,
        shown=_NO_LIMIT,
        excludes=("--no-hook",),
        help="Fail if a rank has not returned from initialize() after D (exit status 124).",
    )
    stall_timeout: float | None = declare_option(
        kinds.LIMIT,
        shown=_NO_LIMIT,
        help="End the job with status 124 after D without output, compiling or launches; choose D "
        "above the longest silent step.",
    )
    grace: float | None = declare_option(
        kinds.DURATION,
        shown=f"{GRACE_S['failure']:g}s after a failure, {GRACE_S['INT']:g}s after INT, "
        f"{GRACE_S['TERM']:g}s after TERM or HUP, {GRACE_S['save']:g}s after a save",
        help="Time that ranks get to exit by themselves, and to save, before they are killed.",
    )
    max_restarts: int = declare_option(
        kinds.COUNT,
        default=0,
        help="Restart the whole job after a failure or a lost host, at most N times, for programs "
        "with checkpoints.",
        is_common=True,
    )
    preempted_status: int | None = declare_option(
        kinds.STATUS,
        shown="as a signal's",
        help="Exit status of a job that was told to end and whose ranks all exited with 0.",
    )


class DebuggingOptions(OptionGroup, title="Debugging", kw_only=True):
    """Options for debugging a job, and for records of its run."""

    events: str | None = declare_option(
        kinds.FILE,
        metavar="FILE|fd:N",
        once=True,
        only_command="the API reads them",
        in_project=False,
        help="Write what happens, as it happens, to FILE, a FIFO or a descriptor: JSON lines.",
        is_common=True,
    )
    dry_run: bool = declare_flag(
        "Print each rank's host, command and variables, to see what a command line means; start "
        "nothing.",
        in_project=False,
        only_command="it is for reading",
        is_common=True,
    )


if TYPE_CHECKING:

    class FeatureOptions(OptionGroup):
        """Options of features; code that reads them says of which: `WatchOptions.of(job).watch`."""

else:
    FeatureOptions = type(OptionGroup)("FeatureOptions", features.list_groups(), {})


class Options(
    JobOptions,
    DeviceOptions,
    HostOptions,
    OutputOptions,
    LimitOptions,
    DebuggingOptions,
    FeatureOptions,
    kw_only=True,
):
    """Values of all options of a job; as a rule None if an option was not given."""

    program: tuple[str, ...] = ()  # and its arguments

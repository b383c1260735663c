"""Declarations of all options, for the command line and for the API's keywords."""

from __future__ import annotations

from typing import Literal

from mcjax_launch.options import kinds
from mcjax_launch.options.option import OptionGroup, declare_flag, declare_option

#: Defaults of --grace, in seconds between asking ranks to exit and killing them, by the cause.
GRACE_S = {"failure": 2.0, "INT": 5.0, "TERM": 30.0, "HUP": 30.0, "save": 0.5}

_NO_LIMIT = "no limit"
_TERMINAL = "the terminal is the calling program's"
_OF_EMIT = {"only_command": "it is for --emit", "needs": "--emit KIND"}


class JobOptions(OptionGroup, title="Job", kw_only=True):
    """Options on the program, its ranks and their environment."""

    num_processes: int | None = declare_option(
        kinds.ONE_OR_MORE,
        short=("-n", "-np"),
        keyword="processes",
        shown="the hosts' slots; 1 locally",
        help="Ranks (processes) in the whole job, on all hosts together; each runs PROGRAM, and "
        "all join one JAX job.",
    )
    module: bool = declare_flag(
        "PROGRAM is the name of a Python module, run as `python -m` does: -m pytest tests.",
        short=("-m",),
        in_project=False,
    )
    python: str | None = declare_option(
        kinds.FILE,
        metavar="PATH",
        shown="the active environment's, else one with jax",
        help="Python interpreter of the ranks, such as a virtual environment's bin/python; the "
        "same path on every host.",
    )
    chdir: str | None = declare_option(
        kinds.FOLDER,
        short=("-C",),
        shown="the current directory",
        help="Working directory of the ranks on every host, for a PROGRAM that opens files by "
        "relative paths.",
    )
    env: tuple[str, ...] = declare_option(
        kinds.VARIABLES,
        short=("-x",),
        default=(),
        repeats=True,
        help="Set a variable in every rank; without a value pass on the launcher's, by a pattern "
        "('NCCL_*') several. Repeatable.",
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
    stdin: bool = declare_flag(
        "Give rank 0, on this machine, the launcher's standard input: what you type, a file or a "
        "pipe.",
        only_command="standard input is the calling program's",
        in_project=False,
    )
    wrap: tuple[str, ...] = declare_option(
        kinds.WRAPPERS,
        default=(),
        repeats=True,
        separator="\n",  # a command has spaces
        help="Run ranks under a command such as 'strace -f' or '0:gdb -ex run --args'. Repeatable.",
    )
    no_hook: bool = declare_flag(
        "Only set variables: load no hook into the ranks' Python, for programs that it disturbs; "
        "failures are explained less.",
    )
    preload: tuple[str, ...] = declare_option(
        kinds.MODULES,
        default=("auto",),
        shown="auto",
        metavar="auto|none|MODULES",
        help="Import modules (jax,flax) once per host and fork the ranks from there; "
        "auto: jax, for programs that import it.",
    )
    compile_once: Literal["auto", "on", "off"] = declare_option(
        kinds.make_choice_kind("auto", "on", "off"),
        default="auto",
        excludes=("--compile-cache",),
        excludes_if="off",
        help="Compile each program once per host: the other ranks load it; auto: on CPU devices.",
    )
    compile_cache: str | None = declare_option(
        kinds.CACHE,
        once=True,
        excludes=("--no-hook",),
        help="Keep compiled programs in DIR for later runs, at most SIZE of them (needs filelock).",
    )


class DeviceOptions(OptionGroup, title="Devices", kw_only=True):
    """Options on each rank's share of its host: devices, cores and priority."""

    cpu_devices: int | None = declare_option(
        kinds.ONE_OR_MORE,
        metavar="K",
        short=("-d",),
        excludes=("--gpus-per-process: JAX computes on one of them",),
        help="Give each rank K CPU devices and set JAX_PLATFORMS=cpu, to try a program without "
        "accelerators.",
    )
    gpus_per_process: int | Literal["all"] | None = declare_option(
        kinds.GPUS,
        shown="an equal share of its host's",
        help="Give each rank K GPUs of its own, or all of its host's.",
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


class HostOptions(OptionGroup, title="Hosts", kw_only=True):
    """Options on the hosts of the ranks and the ways to reach them."""

    hosts: str | tuple[str, ...] | None = declare_option(  # several: the lines of a hosts file
        kinds.HOSTS,
        once=True,
        shown="a scheduler's allocation, or this machine",
        help="Hosts to run on: a hosts file, a list such as a,b,c, or - for standard input.",
    )
    procs_per_host: int | None = declare_option(
        kinds.ONE_OR_MORE,
        metavar="K",
        shown="1; in an allocation what the scheduler says",
        help="Ranks on each host that has no number of its own (a:2, or slots=2 in a hosts file).",
    )
    via: str | None = declare_option(
        kinds.VIA,
        shown="ssh; in an allocation of Slurm srun",
        help="How to reach a host: ssh, srun, or a template such as 'ssh -F cfg {host}'.",
    )
    sync: tuple[str, ...] = declare_option(
        kinds.PATHS,
        default=(),
        repeats=True,
        help="Copy a file or directory to every host and run there. Repeatable.",
    )
    no_host_cache: bool = declare_flag(
        "Keep nothing on the hosts that would make the next start faster."
    )
    setup: str | None = declare_option(
        kinds.TEXT,
        metavar="COMMAND",
        help="Run a command on each host at each start, before the ranks, which get the variables "
        "that it sets.",
    )
    coordinator: str | None = declare_option(
        kinds.COORDINATOR,
        shown="rank 0's host, a free port",
        help="Address of JAX's coordinator, HOST:PORT, where ranks cannot reach the address that "
        "is chosen by itself.",
    )
    mtls: Literal["auto", "on", "off"] = declare_option(
        kinds.make_choice_kind("auto", "on", "off"),
        default="auto",
        excludes=("--no-hook: the hook gives ranks their certificate",),
        excludes_if="on",
        help="Let only this job's processes reach the coordinator, by mutual TLS; auto: on "
        "several hosts with jax 0.12 or newer.",
    )
    num_hosts: int | None = declare_option(
        kinds.ONE_OR_MORE,
        in_project=False,
        help="Number of hosts; a scheduler starts a launcher on each (needs --coordinator). "
        "With --emit: number of hosts to request.",
    )
    host_rank: int | None = declare_option(
        kinds.HOST_RANK,
        in_project=False,
        variable="JOB_COMPLETION_INDEX",
        shown="$JOB_COMPLETION_INDEX",
        help="Number of this launcher's host, counted from 0, where a scheduler starts a launcher "
        "on each of --num-hosts.",
    )


class OutputOptions(OptionGroup, title="Output", kw_only=True):
    """Options on the output of ranks and launcher."""

    log_dir: str | None = declare_option(
        kinds.FOLDER,
        once=True,
        help="Write each rank's complete output to DIR/<rank>.out and DIR/<rank>.err, also of "
        "ranks that are not shown.",
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
        "Of the launcher's own lines, print only errors, warnings and the summary.", short=("-q",)
    )
    verbose: bool = declare_flag(
        "Print each step of the launcher and all of JAX's log lines.", short=("-v",)
    )
    status: Literal["line", "table"] | None = declare_option(
        kinds.make_choice_kind("line", "table"),
        metavar="[line|table]",
        only_command=_TERMINAL,
        help="Show progress in the terminal's last row, or in one row per rank.",
    )


class LimitOptions(OptionGroup, title="Limits and restarts", kw_only=True):
    """Options on time limits, failures and restarts. Durations are in seconds."""

    timeout: float | None = declare_option(
        kinds.LIMIT,
        shown=_NO_LIMIT,
        help="Stop the job after D with all ranks' stacks and exit status 124, so that nothing "
        "runs for ever.",
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
    on_rank_failure: Literal["stop", "continue"] = declare_option(
        kinds.make_choice_kind("stop", "continue"),
        default="stop",
        help="After a rank's failure stop the job, or let the others continue.",
    )
    watch: tuple[str, ...] = declare_option(
        kinds.WATCHED,
        default=(),
        repeats=True,
        shown="off",
        only_command="the command keeps running",
        in_project=False,
        excludes=(
            "--emit",
            "--dry-run",
            "--num-hosts: each launcher would start its own ranks again",
            "--stdin: it can be read only once",
        ),
        help="Run again when PROGRAM, a Python file beside it or in a package there, or PATH is "
        "saved. Repeatable.",
    )
    max_restarts: int = declare_option(
        kinds.COUNT,
        default=0,
        help="Restart the whole job after a failure or a lost host, at most N times, for programs "
        "with checkpoints.",
    )
    preempted_status: int | None = declare_option(
        kinds.STATUS,
        shown="as a signal's",
        help="Exit status of a job that was told to end and whose ranks all exited with 0.",
    )


class DebuggingOptions(OptionGroup, title="Debugging", kw_only=True):
    """Options for debugging a job, and for records of its run."""

    pdb: frozenset[int] | Literal["all"] | None = declare_option(
        kinds.SOME_RANKS,
        metavar="[RANKS]",
        only_command=_TERMINAL,
        excludes=("--no-hook", "--stdin: both read the terminal"),
        help="Open a debugger where an exception ends one of these ranks, by default any.",
    )
    verify_spmd: bool = declare_flag(
        "End the job (status 1) at the first difference between ranks' programs, or between their "
        "values of a replicated array.",
        excludes=("--no-hook", "--on-rank-failure: ranks that go on run other programs"),
    )
    preview: frozenset[int] | Literal["all"] | None = declare_option(
        kinds.PREVIEW,
        in_project=False,
        only_command="it prints a report",
        excludes=(
            *("--no-hook", "--emit", "--check", "--watch", "--detach"),
            *("--num-hosts", "--max-restarts", "--verify-spmd", "--compile-cache"),
            *("--sync", "--cpu-transfers", "--tpu-chips-per-process"),
            "--gpus-per-process: it runs on CPU devices, give each rank K with -d K",
        ),
        help="Run only these ranks (0), each alone and here; compile programs that span processes "
        "and report what they need.",
    )
    on: str | None = declare_option(
        kinds.CHIP,
        in_project=False,
        only_command="it is for --preview",
        needs="--preview RANKS",
        help="Compare with a chip's memory (80G, h100) or compile for a TPU slice (v5e:8x8); "
        "status 1: too large.",
    )
    preview_steps: int | None = declare_option(
        kinds.ONE_OR_MORE,
        in_project=False,
        only_command="it is for --preview",
        needs="--preview RANKS",
        help="End each rank of --preview after N calls of the program that it calls most.",
    )
    profile: str | None = declare_option(
        kinds.PROFILE,
        once=True,
        excludes=("--no-hook",),
        help="Trace all ranks with JAX's profiler for the same 5 s, from D (10s) after "
        "initialize() on, into DIR/RANK.",
    )
    report: str | None = declare_option(
        kinds.FILE,
        once=True,
        help="Write a record of the run to FILE (.json or .html), to read or compare later.",
    )
    events: str | None = declare_option(
        kinds.FILE,
        metavar="FILE|fd:N",
        once=True,
        only_command="the API reads them",
        in_project=False,
        help="Write what happens, as it happens, to FILE, a FIFO or a descriptor: JSON lines.",
    )
    check: bool = declare_flag(
        "Run no PROGRAM; report whether a job would work on these hosts, and whether all have the "
        "same PROGRAM.",
        in_project=False,
        only_command="it prints a list",
    )
    dry_run: bool = declare_flag(
        "Print each rank's host, command and variables, to see what a command line means; start "
        "nothing.",
        in_project=False,
        only_command="it is for reading",
    )


class DetachedOptions(OptionGroup, title="Detached jobs", kw_only=True):
    """Options to start, show, list and end detached jobs."""

    detach: bool = declare_flag(
        "Start the job without a terminal, print its id once all ranks run, and return.",
        excludes=(
            "--emit: a scheduler's job has no terminal to leave",
            "--watch: it starts the job again while you edit",
            "--pdb: a detached job has no terminal for debuggers",
        ),
        in_project=False,
        only_command="`start` returns at once",
    )
    attach: str | None = declare_option(
        kinds.LATEST_JOB,
        metavar="[ID]",
        in_environ=False,
        only_command=_TERMINAL,
        help="Show the detached job ID, or the running or latest one; Ctrl-C leaves it running.",
    )
    jobs: bool = declare_flag(
        "List the detached jobs, each with its id, state, ranks, hosts and last line.",
        in_environ=False,
        only_command="it prints a list",
    )
    json: bool = declare_flag(
        "List them as JSON, one line a job, for scripts and other programs.",
        in_environ=False,
        needs="--jobs",
        only_command="it prints a list",
    )
    stop: str | None = declare_option(
        kinds.JOB,
        metavar="ID",
        in_environ=False,
        only_command="it is for detached jobs",
        help="End the detached job ID as Ctrl-C would, and wait for its end; again: kill its "
        "ranks.",
    )
    wait: str | None = declare_option(
        kinds.JOB,
        metavar="ID",
        in_environ=False,
        only_command="it is for detached jobs",
        help="Wait for the end of the detached job ID, at most --timeout D, and print it as JSON.",
    )


class BatchOptions(OptionGroup, title="Batch scripts and manifests", kw_only=True):
    """Options for --emit, which prints a scheduler's script or manifest and runs nothing."""

    emit: str | None = declare_option(
        kinds.make_choice_kind("slurm", "jobset", "job"),
        in_project=False,
        only_command="it runs nothing",
        help="Print a batch script or manifest that runs this job; start nothing.",
    )
    image: str | None = declare_option(
        kinds.TEXT,
        metavar="IMAGE",
        **_OF_EMIT,
        help="Container image with mcjax-launch and JAX, which jobset and job need, as "
        "registry/name:tag.",
    )
    name: str | None = declare_option(
        kinds.TEXT,
        metavar="NAME",
        **_OF_EMIT,
        shown="PROGRAM's name",
        help="Name of the job, as the scheduler lists it and its pods are called.",
    )
    namespace: str | None = declare_option(
        kinds.TEXT,
        metavar="NAME",
        **_OF_EMIT,
        help="Kubernetes namespace of the job, where it is not that of kubectl's present context.",
    )
    tpu: str | None = declare_option(
        kinds.TEXT,
        metavar="TYPE:TOPOLOGY",
        **_OF_EMIT,
        help="TPU slice to request from GKE, as in tpu-v6e-slice:4x4; --slices K: K of them.",
    )
    engine_option: tuple[str, ...] = declare_option(
        kinds.TEXT,
        metavar="OPTION",
        default=(),
        repeats=True,
        **_OF_EMIT,
        help="Scheduler's option to add to a batch script, as in --partition=gpu. Repeatable.",
    )


class Options(
    JobOptions,
    DeviceOptions,
    HostOptions,
    OutputOptions,
    LimitOptions,
    DebuggingOptions,
    DetachedOptions,
    BatchOptions,
    kw_only=True,
):
    """Values of all options of a job; as a rule None if an option was not given."""

    program: tuple[str, ...] = ()  # and its arguments

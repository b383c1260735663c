"""Options that contradict one another, or that say nothing without another one."""

from collections.abc import Mapping, Set

from mcjax_launch.errors import LaunchError
from mcjax_launch.job.job import is_python
from mcjax_launch.request.kinds import HIGHEST_PORT
from mcjax_launch.request.options import RELAYED, Options
from mcjax_launch.schedulers import slurm

#: What makes a difference to a check.
FOR_CHECK = frozenset(
    {"check", "num_processes", "python", "chdir", "env", "no_hook", "cpu_devices"}
    | {"tpu_chips_per_process", "report"}
    | {"gpus_per_process", "cpu_transfers", "bind_cores", "hosts", "procs_per_host", "via"}
    | {"slices", "coordinator", "color", "quiet", "verbose", "timeout", "start_timeout"}
    | {"grace"}
)
_FOR_EMIT = ("image", "name", "namespace", "tpu", "engine_option")


def check(options: Options, given: Set[str], environ: Mapping[str, str]) -> None:
    """Refuse options that do not go together, whatever the hosts, and a missing PROGRAM.

    Args:
        options: all of them.
        given: the names of those that are for this job alone: a variable may be set for many.
        environ: of this process.

    Raises:
        LaunchError: there are such.

    """
    if not options.program and options.emit is None and not options.check:
        raise LaunchError("no PROGRAM: try mcjax-launch -n 4 train.py, or --help")
    if options.module and options.program:
        _check_module(options.program[0])
    if options.check:
        _check_check(options, given)
    _check_contradictions(options)
    _check_lone(options, given, environ)
    if options.report or options.profile:  # a run without need not import it
        from mcjax_launch.request import clashes

        clashes.check(options)


def _check_check(options: Options, given: Set[str]) -> None:
    """Refuse what would make no difference to a check."""
    if options.program:
        raise LaunchError(
            f"--check runs a program of its own: leave out {options.program[0]}, or --check"
        )
    if options.emit is not None:
        raise LaunchError("--check cannot be combined with --emit: run it on the hosts")
    if options.num_hosts:
        raise LaunchError("--check needs one launcher for all hosts: leave out --num-hosts")
    for name in sorted(given - FOR_CHECK - set(_FOR_EMIT) - {"program"}):
        raise LaunchError(f"--check cannot be combined with --{name.replace('_', '-')}")


def _check_module(name: str) -> None:
    """Refuse the name of a file where a module's is wanted: Python would say so in every rank."""
    if name.endswith(".py") or "/" in name:
        module = name.removesuffix(".py").removeprefix("./").replace("/", ".")
        file = "leave out -m, or " if name.endswith(".py") else ""
        raise LaunchError(f"-m {name}: not the name of a module; {file}write -m {module}")


def _check_contradictions(options: Options) -> None:
    for name, value in (
        ("--start-timeout", options.start_timeout),
        ("--verify-spmd", options.verify_spmd),
        ("--slices", options.slices != "auto"),
        ("--pdb", options.pdb),
        ("--profile", options.profile),
    ):
        if value and options.no_hook:
            raise LaunchError(f"{name} cannot be combined with --no-hook")
    if options.cpu_devices is not None and options.gpus_per_process is not None:
        raise LaunchError(
            "--cpu-devices cannot be combined with --gpus-per-process: JAX computes on one of them"
        )
    if options.tpu_chips_per_process is not None and options.cpu_devices is not None:
        raise LaunchError("--tpu-chips-per-process cannot be combined with -d")
    if options.min_hosts and isinstance(options.slices, int):
        raise LaunchError(
            f"--slices {options.slices} cannot be combined with --min-hosts: fewer ranks may not "
            "be so many equal slices; try --slices host"
        )
    if options.coordinator == RELAYED and options.no_hook:
        raise LaunchError(
            "--coordinator ssh cannot be combined with --no-hook: the hook leads ranks there"
        )
    if options.coordinator == RELAYED and options.num_hosts and options.emit is None:
        raise LaunchError(
            "--coordinator ssh needs one launcher for all hosts: with --num-hosts, give HOST:PORT"
        )
    if options.pdb and options.stdin:
        raise LaunchError("--pdb cannot be combined with --stdin: both read the terminal")
    if options.debugpy is not None:
        _check_debugpy(options, options.debugpy)
    if options.collapse and options.no_prefix:
        raise LaunchError("--collapse cannot be combined with --no-prefix")
    if options.stdin and options.hosts == "-":
        raise LaunchError("--hosts - reads standard input itself: with --stdin, name a file")


def _check_debugpy(options: Options, port: int) -> None:
    if options.pdb:
        raise LaunchError("--pdb cannot be combined with --debugpy")
    if options.program and not is_python(options.program, options.module):
        raise LaunchError(
            f"--debugpy {port}: PROGRAM must be a Python file (*.py) or, with -m, a module"
        )
    last = port + (options.num_processes or 1) - 1
    if last > HIGHEST_PORT:
        raise LaunchError(
            f"--debugpy {port}: the last rank's port would be {last}; the highest is {HIGHEST_PORT}"
        )


def _check_lone(options: Options, given: Set[str], environ: Mapping[str, str]) -> None:
    """Refuse options that would be silently ignored."""
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


def _check_without_hosts(options: Options, given: Set[str]) -> None:
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

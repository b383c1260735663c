"""The command line: click to a Job, a hosts list and a Style; nothing else knows click."""

import contextlib
import os
import re
import signal
import sys
import time
from collections.abc import Sequence
from typing import Any

import click

from mcjax_launch import __version__, errors, placeholders, transport
from mcjax_launch.engines import slurm
from mcjax_launch.errors import LaunchError
from mcjax_launch.hosts import LOCAL, Host, parse_file, parse_list
from mcjax_launch.plan import (
    LOOPBACK,
    Facts,
    Job,
    describe,
    join_address,
    make_plan,
    place,
    split_address,
)
from mcjax_launch.style import Style

_NAME_S = 300
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


class Duration(click.ParamType):  # type: ignore[type-arg]
    """Seconds, as `90`, `90s`, `5m` or `2h`."""

    name = "duration"

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        if isinstance(value, float):
            return value
        found = re.fullmatch(r"(\d+(?:\.\d+)?)(s|m|h|)", str(value).strip())
        if found is None:
            self.fail(f"{value!r} is no duration: write 90, 90s, 5m or 2h", param, ctx)
        return float(found[1]) * _UNITS[found[2]]


class Ranks(click.ParamType):  # type: ignore[type-arg]
    """A set of ranks, as `0` or `0,4-7`."""

    name = "ranks"

    def convert(self, value: Any, param: Any, ctx: Any) -> frozenset[int]:
        if isinstance(value, frozenset):
            return value
        ranks: set[int] = set()
        for part in str(value).split(","):
            found = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part)
            if found is None or int(found[2] or found[1]) < int(found[1]):
                self.fail(f"{value!r} is no list of ranks: write 0 or 0,4-7", param, ctx)
            ranks.update(range(int(found[1]), int(found[2] or found[1]) + 1))
        return frozenset(ranks)


_POSITIVE = click.IntRange(min=1)
_DURATION = Duration()


@click.command(
    context_settings={
        "auto_envvar_prefix": "MCJAX",
        "allow_interspersed_args": False,
        "help_option_names": ["-h", "--help"],
        "max_content_width": 100,
    },
    options_metavar="[OPTIONS] [--]",
    epilog="Every option can also be set as MCJAX_<OPTION>, e.g. MCJAX_LOG_DIR.",
)
@click.argument("program", nargs=-1, type=click.UNPROCESSED, metavar="PROGRAM [ARGS]...")
@click.option("-n", "--num-processes", type=_POSITIVE, metavar="N", help="Ranks in the whole job.")
@click.option("-m", "--module", is_flag=True, help="PROGRAM is the name of a Python module.")
@click.option("--python", metavar="PATH", help="Python of the ranks (default: the launcher's).")
@click.option("-C", "--chdir", metavar="DIR", help="Working directory of the ranks.")
@click.option(
    "-x", "--env", multiple=True, metavar="NAME[=VALUE]", help="Set or hand on a variable."
)
@click.option("-d", "--cpu-devices", type=_POSITIVE, metavar="K", help="CPU devices in each rank.")
@click.option("--gpus-per-process", type=_POSITIVE, metavar="K", help="Each rank's own K GPUs.")
@click.option(
    "--cpu-transfers", is_flag=True, help="Let jax.device_put go between processes on CPU."
)
@click.option("--bind-cores", is_flag=True, help="Give each rank its own share of the cores.")
@click.option("--coordinator", metavar="HOST[:PORT]", help="Override the coordinator's address.")
@click.option("--no-hook", is_flag=True, help="Set variables only; leave the ranks' Python alone.")
@click.option("--hosts", metavar="FILE|LIST|-", help="Hosts file, a,b,c, or standard input.")
@click.option(
    "--procs-per-host", type=_POSITIVE, metavar="K", help="Ranks on hosts that do not say theirs."
)
@click.option(
    "--via", metavar="COMMAND", help="How to reach a host: ssh, srun, or 'ssh -F cfg {host}'."
)
@click.option("--sync", multiple=True, metavar="PATH", help="Copy this to each host and run there.")
@click.option("--num-hosts", type=_POSITIVE, metavar="N", help="N launchers, one on each host.")
@click.option(
    "--host-rank",
    type=click.IntRange(min=0),
    envvar=["MCJAX_HOST_RANK", "JOB_COMPLETION_INDEX"],
    metavar="I",
    help="Which of them this is.",
)
@click.option(
    "--max-restarts",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Start the job again after a failure, N times at most.",
)
@click.option(
    "--min-hosts", type=_POSITIVE, metavar="N", help="Restart without lost hosts, with N at least."
)
@click.option(
    "--emit",
    type=click.Choice(["slurm", "jobset", "job"]),
    help="Print what runs this job there; start nothing.",
)
@click.option("--image", metavar="IMAGE", help="Container image (--emit jobset or job).")
@click.option("--name", metavar="NAME", help="Name of the emitted job (default: after PROGRAM).")
@click.option("--namespace", metavar="NAME", help="Namespace of the emitted job.")
@click.option("--engine-option", multiple=True, metavar="TEXT", help="One more #SBATCH line.")
@click.option("--log-dir", metavar="DIR", help="Each rank's whole output in DIR/<rank>.out, .err.")
@click.option("--show", type=Ranks(), metavar="RANKS", help="Show only these ranks: 0 or 0,4-7.")
@click.option("--timestamps", is_flag=True, help="Put the time of day before each line.")
@click.option("--no-prefix", is_flag=True, help="Do not mark lines with their rank.")
@click.option("--color", type=click.Choice(["auto", "always", "never"]), default="auto")
@click.option("-q", "--quiet", is_flag=True, help="Say nothing but errors and the report.")
@click.option("-v", "--verbose", is_flag=True, help="Say what is done.")
@click.option("--timeout", type=_DURATION, metavar="D", help="End the job after D (exit 124).")
@click.option(
    "--start-timeout", type=_DURATION, metavar="D", help="D for all to join in initialize()."
)
@click.option("--grace", type=_DURATION, metavar="D", help="Between asking to end and killing.")
@click.option("--dry-run", is_flag=True, help="Print what would run; start nothing.")
@click.version_option(__version__, message="mcjax-launch %(version)s")
@click.pass_context
def command(context: click.Context, /, **options: Any) -> int:
    """Run PROGRAM as the processes of one multi-controller JAX job.

    PROGRAM is a Python file (*.py), a module (with -m) or any other command. In its arguments
    {process_id}, {num_processes}, {local_process_id}, {coordinator}, {coordinator_host},
    {coordinator_port}, {host} and {job_id} are filled in for each rank.

    Durations are 90, 90s, 5m or 2h.
    """
    if options["emit"]:
        from mcjax_launch.engines.emit import emit

        click.echo(emit(context, options), nl=False)
        return 0
    hosts = find_hosts(options)
    in_slurm = options["hosts"] is None and slurm.inside(os.environ)
    job = make_job(options, hosts)
    used = tuple(dict.fromkeys(host for host, _ in place(job.processes_here, hosts)))
    style = make_style(options, job)
    texts = [*job.program, *(value for _, value in job.env), options["log_dir"] or ""]
    texts = [] if options["quiet"] else texts
    for word, near in placeholders.misspelt(texts):
        hint = f"{{{word}}} stays as it is; did you mean {{{near}}}?"
        click.echo(f"mcjax-launch: {hint}", err=True)
    if options["dry_run"]:
        click.echo(_dry_run(job, used), nl=False)
        return 0
    local = [host for host in used if host.is_local]
    early = {host: transport.start(transport.local_argv()) for host in local}
    from mcjax_launch import restarts  # while the agent here starts

    return restarts.run(
        job,
        used,
        early,
        options["via"] or ("srun" if in_slurm else "ssh"),
        style,
        log_dir=options["log_dir"],
        restarts=restarts.Restarts(most=options["max_restarts"], min_hosts=options["min_hosts"]),
    )


def find_hosts(options: dict[str, Any]) -> tuple[Host, ...]:
    """The hosts that the options name; this machine if they name none.

    Raises:
        LaunchError: a hosts file or list cannot be read.

    """
    given, slots = options["hosts"], options["procs_per_host"] or 1
    if given is None:
        here = options["num_processes"] or slots
        if slurm.inside(os.environ) and not options["num_hosts"]:
            return slurm.allocated(os.environ, options["procs_per_host"])
        if options["num_hosts"]:
            here = processes_here(options)
        return (Host(name=LOCAL, slots=here),)
    if given == "-":
        return parse_file(sys.stdin.read(), "standard input", slots)
    if os.path.isfile(given):
        with open(given, encoding="utf-8", errors="surrogateescape") as file:
            return parse_file(file.read(), given, slots)
    if os.sep in given or given.endswith(".txt"):
        raise LaunchError(f"--hosts {given}: no such file")
    return parse_list(given, slots)


def processes_here(options: dict[str, Any]) -> int:
    """How many ranks each of several launchers starts.

    Raises:
        LaunchError: the options do not say which launcher this is, or contradict one another.

    """
    hosts, whole = options["num_hosts"], options["num_processes"]
    if options["hosts"] is not None:
        raise LaunchError(
            "--num-hosts: one launcher on each host knows no other; leave out --hosts"
        )
    if options["coordinator"] is None or not split_address(options["coordinator"])[1]:
        raise LaunchError("--num-hosts needs --coordinator HOST:PORT, the same for all launchers")
    if options["host_rank"] is None:
        raise LaunchError("--num-hosts needs --host-rank I, or JOB_COMPLETION_INDEX")
    if options["host_rank"] >= hosts:
        raise LaunchError(f"--host-rank {options['host_rank']}: the last is {hosts - 1}")
    if whole is None:
        return int(options["procs_per_host"] or 1)
    if whole % hosts:
        raise LaunchError(f"-n {whole}: not the same number on each of {hosts} hosts")
    return int(whole // hosts)


def make_job(options: dict[str, Any], hosts: Sequence[Host]) -> Job:
    """The Job that the options ask for.

    Args:
        options: as click found them.
        hosts: where it may run.

    Raises:
        LaunchError: something in them cannot be; nothing has been started.

    """
    try:
        chdir = os.path.abspath(options["chdir"] or ".")
    except FileNotFoundError:
        raise LaunchError("the current directory is gone; choose one with -C") from None
    here = any(host.is_local and not host.chdir for host in hosts)
    if here and not options["sync"] and not os.path.isdir(chdir):
        raise LaunchError(f"-C {options['chdir']}: no such directory")
    if options["start_timeout"] is not None and options["no_hook"]:
        raise LaunchError("--start-timeout needs the hook: leave out --no-hook")
    job = Job(
        program=options["program"],
        num_processes=options["num_processes"]
        or sum(host.slots for host in hosts) * (options["num_hosts"] or 1),
        num_hosts=options["num_hosts"] or 1,
        host_rank=options["host_rank"] or 0 if options["num_hosts"] else 0,
        module=options["module"],
        python=_find_python(options["python"]) if here else options["python"] or sys.executable,
        python_given=options["python"] is not None,
        chdir=options["chdir"] if options["sync"] and options["chdir"] else chdir,
        chdir_given=options["chdir"] is not None,
        env=tuple(_variable(text) for text in options["env"]),
        cpu_devices=options["cpu_devices"],
        gpus_per_process=options["gpus_per_process"],
        cpu_transfers=options["cpu_transfers"],
        bind_cores=options["bind_cores"],
        coordinator=_coordinator(options["coordinator"], _wait_for_name(options)),
        hook=not options["no_hook"],
        sync=options["sync"],
        timeout=options["timeout"],
        start_timeout=options["start_timeout"],
        grace=options["grace"],
    )
    if not job.program:
        raise LaunchError("no PROGRAM: try mcjax-launch -n 4 train.py, or --help")
    if here and not job.sync:
        _check_program(job)
    return job


def make_style(options: dict[str, Any], job: Job) -> Style:
    """How the console looks.

    Raises:
        LaunchError: --show names ranks that the job does not have.

    """
    show = options["show"]
    if show is not None and max(show) >= job.num_processes:
        raise LaunchError(f"--show {max(show)}: the last rank is {job.num_processes - 1}")
    return Style(
        prefix=not options["no_prefix"],
        timestamps=options["timestamps"],
        colour=options["color"],
        show=show,
        quiet=options["quiet"],
        verbose=options["verbose"],
    )


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not re.fullmatch(r"[A-Za-z_]\w*", name):
        raise LaunchError(f"-x {text}: {name!r} is no variable's name")
    if equals:
        return name, value
    if name not in os.environ:
        raise LaunchError(f"-x {name}: it is not set here; write -x {name}=VALUE")
    return name, os.environ[name]


def _wait_for_name(options: dict[str, Any]) -> float:
    """Seconds that the coordinator's name may take to appear: its pod may not have started yet."""
    if not options["num_hosts"]:
        return 0
    return float(_NAME_S if options["start_timeout"] is None else options["start_timeout"])


def _coordinator(text: str | None, wait_s: float) -> str | None:
    """The coordinator's address with a numeric host."""
    if text is None:
        return None
    try:
        host, port = split_address(text)
        if not host or not 0 <= port < 65536:
            raise ValueError
    except ValueError:
        raise LaunchError(f"--coordinator {text}: write HOST or HOST:PORT") from None
    import socket

    deadline = time.monotonic() + wait_s
    while True:
        try:
            found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
            break
        except OSError as error:
            if time.monotonic() >= deadline:
                raise LaunchError(f"--coordinator {text}: {host}: {error.strerror}") from None
            time.sleep(0.5)
    found.sort(key=lambda entry: entry[0] != socket.AF_INET)
    numeric = str(found[0][4][0])
    return f"[{numeric}]:{port}" if ":" in numeric else f"{numeric}:{port}"


# --- what can be known of PROGRAM before anything runs ---


def _find_python(given: str | None) -> str:
    """The interpreter that the user names, relative to where they are."""
    if given is None:
        return sys.executable
    return _find_command(given, os.getcwd(), "--python ")


def _find_command(name: str, chdir: str, option: str = "", path: str | None = None) -> str:
    """The path of a command as a rank would find it.

    Args:
        path: the PATH to look in, if not our own.

    Raises:
        LaunchError: there is none, or it is not executable.

    """
    if os.sep in name:
        paths = [os.path.join(chdir, name)]
    else:
        paths = [os.path.join(folder, name) for folder in _folders(path)]
    files = [file for file in paths if os.path.isfile(file)]
    for file in files:
        if os.access(file, os.X_OK):
            return file if option else name
    if any(os.path.isdir(folder) for folder in paths if os.sep in name):
        raise LaunchError(f"{option}{name}: is a directory", errors.NOT_EXECUTABLE)
    if files:
        hint = "" if option else f"; chmod +x it, or run it with its interpreter: bash {name}"
        raise LaunchError(f"{option}{name}: not executable{hint}", errors.NOT_EXECUTABLE)
    where = "no such file" if os.sep in name else "not found in PATH"
    if os.sep not in name and os.path.isfile(os.path.join(chdir, name)):
        where += f"; did you mean ./{name}?"
    raise LaunchError(f"{option}{name}: {where}", errors.NOT_FOUND)


def _folders(path: str | None) -> list[str]:
    return os.get_exec_path(None if path is None else {"PATH": path})


def _check_program(job: Job) -> None:
    if not job.module and not job.program[0].endswith(".py"):
        _find_command(job.program[0], job.chdir, path=dict(job.env).get("PATH"))
        return
    if not job.module:
        path = os.path.join(job.chdir, job.program[0])
        if not os.path.exists(path):
            raise LaunchError(f"{job.program[0]}: no such file in {job.chdir}", errors.NOT_FOUND)
        if not os.path.isfile(path) or not os.access(path, os.R_OK):
            raise LaunchError(f"{job.program[0]}: not a readable file", errors.NOT_EXECUTABLE)


def _dry_run(job: Job, hosts: Sequence[Host]) -> str:
    address, port = split_address(job.coordinator) if job.coordinator else ("", 0)
    first = hosts[0]
    plan = make_plan(
        job,
        hosts,
        {
            host: Facts(gpus=1 << 30, python=host.python or "", cwd=host.chdir or "")
            for host in hosts
        },
        job_id="00000000",
        coordinator=join_address(
            address or (LOOPBACK if len(hosts) == 1 else first.name), port or "PORT"
        ),
    )
    return describe(plan, os.environ)


# --- the one error handler ---


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; the exit status."""
    for fd in range(3):  # a descriptor that is closed would be given to something else
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    try:
        return _run(argv)
    finally:
        with contextlib.suppress(OSError, AttributeError):  # gone, or never there
            sys.stdout.flush()


def _run(argv: Sequence[str] | None) -> int:
    try:
        # Anything that click returns is ours but for --help and --version, which return 0.
        return int(command.main(argv, prog_name="mcjax-launch", standalone_mode=False) or 0)
    except LaunchError as error:
        _complain(str(error))
        return error.status
    except click.ClickException as error:
        _complain(" ".join(error.format_message().split()))
        return errors.USAGE
    except (click.Abort, KeyboardInterrupt):
        return 128 + signal.SIGINT
    except (BrokenPipeError, SystemExit):  # click leaves so when nobody reads --help
        return errors.READER_GONE
    except Exception as error:
        import tempfile
        import traceback

        with tempfile.NamedTemporaryFile("w", prefix="mcjax-", suffix=".txt", delete=False) as log:
            traceback.print_exc(file=log)
        _complain(f"a fault of its own: {error!r}; please report {log.name}")
        return errors.OWN_FAULT


def _complain(message: str) -> None:
    with contextlib.suppress(OSError):
        os.write(2, f"mcjax-launch: {message}\n".encode("utf-8", "replace"))

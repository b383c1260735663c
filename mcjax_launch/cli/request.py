"""From the options, as click found them, to a Job, its hosts and a Style."""

import os
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from mcjax_launch.console.style import Style
from mcjax_launch.errors import LaunchError
from mcjax_launch.job.hosts import LOCAL, Host, parse_file, parse_list
from mcjax_launch.job.job import Job
from mcjax_launch.protocol import exit_status
from mcjax_launch.protocol.address import split_address
from mcjax_launch.schedulers import slurm

_NAME_S = 300


def find_hosts(options: dict[str, Any]) -> tuple[Host, ...]:
    """The hosts that the options name; this machine if they name none.

    Raises:
        LaunchError: a hosts file or list cannot be read.

    """
    given, slots = options["hosts"], options["procs_per_host"] or 1
    if options["num_hosts"]:
        return (Host(name=LOCAL, slots=processes_here(options)),)
    if given is None and slurm.inside(os.environ):
        return _with_gpus(slurm.allocated(os.environ, options["procs_per_host"]))
    if given is None:
        return (Host(name=LOCAL, slots=options["num_processes"] or slots),)
    if given == "-":
        return parse_file(sys.stdin.read(), "standard input", slots)
    if os.path.exists(given) and not os.path.isdir(given):
        with open(given, encoding="utf-8-sig", errors="surrogateescape") as file:
            return parse_file(file.read(), given, slots)
    if os.sep in given or given.endswith(".txt"):
        raise LaunchError(f"--hosts {given}: no such file")
    return parse_list(given, slots)


def _with_gpus(hosts: Sequence[Host]) -> tuple[Host, ...]:
    """The nodes with the GPUs that Slurm has given the job there.

    A step has to ask for them by number: it would inherit what the job asked for each task.
    """
    import subprocess

    look = ["scontrol", "show", "job", "-d", os.environ["SLURM_JOB_ID"]]
    try:
        shown = subprocess.run(look, capture_output=True, text=True, timeout=20).stdout
    except (OSError, subprocess.TimeoutExpired):
        return tuple(hosts)
    found = slurm.gpus(shown)
    return tuple(replace(host, gpus=found.get(host.name)) for host in hosts)


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
    if not re.search(r"[^:]:[0-9]+$", options["coordinator"] or ""):
        raise LaunchError("--num-hosts needs --coordinator HOST:PORT, the same for all launchers")
    if options["max_restarts"]:
        raise LaunchError(
            "--num-hosts: no launcher restarts alone; leave --max-restarts to the engine"
        )
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
    for option in ("start_timeout", "verify_spmd"):
        if options[option] and options["no_hook"]:
            raise LaunchError(f"--{option.replace('_', '-')} needs the hook: leave out --no-hook")
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
        max_restarts=options["max_restarts"],
        min_hosts=options["min_hosts"],
        timeout=options["timeout"],
        start_timeout=options["start_timeout"],
        stall_timeout=options["stall_timeout"],
        verify_spmd=options["verify_spmd"],
        record=options["report"] is not None,
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
        LaunchError: --show names ranks that the job does not have, or --collapse has no prefix.

    """
    if options["collapse"] and options["no_prefix"]:
        raise LaunchError("--collapse says which ranks in the prefix: leave out --no-prefix")
    show = options["show"]
    if show is not None and max(show) >= job.num_processes:
        raise LaunchError(f"--show {max(show)}: the last rank is {job.num_processes - 1}")
    return Style(
        prefix=not options["no_prefix"],
        timestamps=options["timestamps"],
        colour=options["color"],
        show=show,
        collapse=options["collapse"],
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
    if not options["num_hosts"] or options["dry_run"]:
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

    deadline, said = time.monotonic() + wait_s, False
    while True:
        try:
            found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
            break
        except OSError as error:
            if time.monotonic() >= deadline:
                raise LaunchError(f"--coordinator {text}: {host}: {error.strerror}") from None
            if not said:
                print(f"mcjax-launch: waiting for the name {host}", file=sys.stderr, flush=True)
            said = True
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
        raise LaunchError(f"{option}{name}: is a directory", exit_status.NOT_EXECUTABLE)
    if files:
        hint = "" if option else f"; chmod +x it, or run it with its interpreter: bash {name}"
        raise LaunchError(f"{option}{name}: not executable{hint}", exit_status.NOT_EXECUTABLE)
    where = "no such file" if os.sep in name else "not found in PATH"
    if os.sep not in name and os.path.isfile(os.path.join(chdir, name)):
        where += f"; did you mean ./{name}?"
    raise LaunchError(f"{option}{name}: {where}", exit_status.NOT_FOUND)


def _folders(path: str | None) -> list[str]:
    return os.get_exec_path(None if path is None else {"PATH": path})


def _check_program(job: Job) -> None:
    if not job.module and not job.program[0].endswith(".py"):
        _find_command(job.program[0], job.chdir, path=dict(job.env).get("PATH"))
        return
    if not job.module:
        path = os.path.join(job.chdir, job.program[0])
        if not os.path.exists(path):
            raise LaunchError(
                f"{job.program[0]}: no such file in {job.chdir}", exit_status.NOT_FOUND
            )
        if not os.path.isfile(path) or not os.access(path, os.R_OK):
            raise LaunchError(f"{job.program[0]}: not a readable file", exit_status.NOT_EXECUTABLE)

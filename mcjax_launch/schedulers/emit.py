"""The same command line, for an engine to run."""

import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from mcjax_launch.errors import LaunchError
from mcjax_launch.job.job import GRACE_S
from mcjax_launch.schedulers import kubernetes, slurm
from mcjax_launch.schedulers.size import Size

# What gives the size or goes to the engine: not for the launcher that the engine starts.
_NOT_PASSED_ON = frozenset(
    {
        "emit",
        "num_hosts",
        "num_processes",
        "procs_per_host",
        "host_rank",
        "coordinator",
        "hosts",
        "via",
    }
    | {"image", "name", "namespace", "engine_option", "dry_run"}
)
_DONE_BY_JOBSET = frozenset({"max_restarts"})


def emit(options: Mapping[str, Any], given: Callable[[frozenset[str]], list[str]]) -> str:
    """The script or manifest that runs this command line.

    Args:
        options: of the command line.
        given: the command line again, without the options named.

    Raises:
        LaunchError: something that the engine needs is missing or will not do.

    """
    kind = options["emit"]
    if not options["program"]:
        raise LaunchError("--emit: no PROGRAM: write the command line that is to run there")
    if options["hosts"] is not None:
        raise LaunchError("--emit: the engine chooses the hosts; say how many with --num-hosts")
    size = _size(options)
    name = options["name"] or default_name(options["program"][0])
    if kind == "slurm":
        command = [*_ourselves(), *given(_NOT_PASSED_ON)]
        return slurm.script(command, size, name, options["engine_option"])
    if size.goes_on:
        raise LaunchError(f"--emit {kind}: all pods take part; leave out --min-hosts")
    if options["engine_option"]:
        raise LaunchError(f"--engine-option is for slurm: edit the {kind} instead")
    if not options["image"]:
        raise LaunchError(f"--emit {kind} needs --image: one that has this launcher and jax")
    make = kubernetes.job if kind == "job" else kubernetes.jobset
    return make(
        given(_NOT_PASSED_ON | _DONE_BY_JOBSET), size, name, options["namespace"], options["image"]
    )


def _size(options: Mapping[str, Any]) -> Size:
    hosts, whole = options["num_hosts"] or 1, options["num_processes"]
    ranks = options["procs_per_host"] or (whole or hosts) // hosts
    if whole is not None and whole != hosts * ranks:
        raise LaunchError(
            f"--emit: {hosts} hosts with {ranks} ranks each are not -n {whole}: give --num-hosts "
            "and --procs-per-host"
        )
    seconds = options["timeout"]
    if seconds is not None:  # of each attempt, and the time to end well
        grace = GRACE_S["TERM"] if options["grace"] is None else options["grace"]
        seconds = (seconds + grace) * (options["max_restarts"] + 1)
    return Size(
        hosts=hosts,
        ranks=ranks,
        gpus=(options["gpus_per_process"] or 0) * ranks,
        seconds=seconds,
        restarts=options["max_restarts"],
        goes_on=options["min_hosts"] is not None,
    )


def default_name(program: str) -> str:
    """A name that every engine takes, after the program."""
    stem = os.path.basename(program).removesuffix(".py").lower()
    clean = "".join(char if char.isascii() and char.isalnum() else "-" for char in stem).strip("-")
    return clean if clean[:1].isalpha() else f"job-{clean}".rstrip("-")


def _ourselves() -> list[str]:
    """The launcher, by a path that the nodes of a cluster share."""
    path = os.path.abspath(sys.argv[0])
    if os.path.isfile(path) and os.access(path, os.X_OK) and not path.endswith("__main__.py"):
        return [path]
    return [sys.executable, "-m", "mcjax_launch"]

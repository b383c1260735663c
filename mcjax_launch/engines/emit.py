"""The same command line, for an engine to run."""

import os
import sys
from collections.abc import Mapping
from typing import Any

import click

from mcjax_launch.engines import kubernetes, slurm
from mcjax_launch.engines.size import Size
from mcjax_launch.errors import LaunchError

KINDS = ("slurm", "jobset", "job")
# What gives the size or goes to the engine: not for the launcher that the engine starts.
_NOT_PASSED_ON = frozenset(
    ("emit", "num_hosts", "procs_per_host", "host_rank", "coordinator", "hosts", "via", "program")
    + ("image", "name", "namespace", "engine_option", "dry_run")
)
_RUN_BY_JOBSET = "max_restarts"


def emit(context: click.Context, options: Mapping[str, Any]) -> str:
    """The script or manifest that runs this command line.

    Raises:
        LaunchError: something that the engine needs is missing or will not do.

    """
    kind = options["emit"]
    if not options["program"]:
        raise LaunchError("--emit: no PROGRAM: write the command line that is to run there")
    if options["hosts"] is not None:
        raise LaunchError("--emit: the engine chooses the hosts; say how many with --num-hosts")
    ranks = options["procs_per_host"] or 1
    size = Size(
        hosts=options["num_hosts"] or 1,
        ranks=ranks,
        gpus=(options["gpus_per_process"] or 0) * ranks,
        seconds=options["timeout"],
        restarts=options["max_restarts"],
    )
    name = options["name"] or default_name(options["program"][0])
    if kind == "slurm":
        command = [*_ourselves(), *words(context, options, frozenset())]
        return slurm.script(command, size, name, options["engine_option"])
    if options["engine_option"]:
        raise LaunchError(f"--engine-option is for slurm: edit the {kind} instead")
    if not options["image"]:
        raise LaunchError(f"--emit {kind} needs --image: one that has this launcher and jax")
    make = kubernetes.job if kind == "job" else kubernetes.jobset
    command = words(context, options, frozenset([_RUN_BY_JOBSET]))
    return make(command, size, name, options["namespace"], options["image"])


def words(
    context: click.Context, options: Mapping[str, Any], also_left_out: frozenset[str]
) -> list[str]:
    """The options that the user gave, and the program, as a command line again."""
    found: list[str] = []
    for parameter in context.command.params:
        key = str(parameter.name)
        if key in _NOT_PASSED_ON | also_left_out or not isinstance(parameter, click.Option):
            continue
        source = context.get_parameter_source(key)
        if source in (None, click.core.ParameterSource.DEFAULT):
            continue
        option = max(parameter.opts, key=len)
        value = options[key]
        if parameter.is_flag:
            found += [option] if value else []
            continue
        for one in value if parameter.multiple else [value]:
            found += [option, _text(one)]
    return [*found, "--", *options["program"]]


def _text(value: Any) -> str:
    if isinstance(value, frozenset):
        return ",".join(map(str, sorted(value)))
    return f"{value:g}" if isinstance(value, float) else str(value)


def default_name(program: str) -> str:
    """A name that every engine takes, after the program."""
    stem = os.path.basename(program).removesuffix(".py").lower()
    clean = "".join(char if char.isascii() and char.isalnum() else "-" for char in stem).strip("-")
    return clean if clean[:1].isalpha() else f"job-{clean}".rstrip("-")


def _ourselves() -> list[str]:
    """This launcher, by a path that the nodes of a cluster share."""
    path = os.path.abspath(sys.argv[0])
    if os.path.isfile(path) and os.access(path, os.X_OK) and not path.endswith("__main__.py"):
        return [path]
    return [sys.executable, "-m", "mcjax_launch"]

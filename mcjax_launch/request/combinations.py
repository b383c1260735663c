"""Checks for options that contradict each other, or need another option."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from itertools import pairwise

from mcjax_launch.errors import LaunchError
from mcjax_launch.machine import known_schedulers
from mcjax_launch.options import features as declared
from mcjax_launch.options.options import Options

NO_PROGRAM = "no PROGRAM: try mcjax-launch -n 4 train.py, or --help"


def check(
    options: Options, given: Set[str], environ: Mapping[str, str], *, is_elsewhere: bool = False
) -> None:
    """Refuse options that can never be combined, and words that cannot be PROGRAM.

    Args:
        options: all options.
        given: names of the options on the command line; options from variables do not count.
        environ: variables of this process.
        is_elsewhere: True if the job runs on a machine that is not known here.

    Raises:
        LaunchError: options cannot be combined, or PROGRAM is none.

    """
    if options.program and not options.program[0].strip():
        what = "blank" if options.program[0] else "empty"
        raise LaunchError(f"PROGRAM is {what}: is a variable of your shell unset?")
    if options.program:
        _check_program(options.program)
    if options.module and options.program:
        _check_module(options.program[0])
    _check_output_paths(options)
    _check_contradictions(options)
    _check_declared(options, given)
    if not is_elsewhere:
        _check_lone(options, given, environ)


def _check_program(program: Sequence[str]) -> None:
    """Refuse a notebook, and two programs with a `:` between them, as mpirun takes them."""
    name = program[0]
    if name.endswith(".ipynb"):
        script = f"{name.removesuffix('.ipynb')}.py"
        raise LaunchError(
            f"{name} is a notebook: make {script} of it with `jupyter nbconvert --to script "
            f"{name}`, or run its cells with %%mcjax"
        )
    for word, after in pairwise(program[1:]):
        if word == ":" and after.startswith(("-n", "-c", "-x", "--n")):
            raise LaunchError(
                f"{name} ... : {after} ...: a job runs one program in all ranks; let that program "
                "choose what to do by JAX_PROCESS_ID"
            )


def _check_module(name: str) -> None:
    """Refuse a file's name after -m, which Python would report as an error in every rank."""
    if name.endswith(".py") or "/" in name:
        module = name.removesuffix(".py").removeprefix("./").replace("/", ".")
        file = "leave out -m, or " if name.endswith(".py") else ""
        raise LaunchError(f"-m {name}: not the name of a module; {file}write -m {module}")


def _check_output_paths(options: Options) -> None:
    """Refuse a Python file as output, which is likely the user's PROGRAM."""
    for option in Options.declared.values():
        is_output = option.once and option.kind is not None and option.kind.accepts == "Path"
        value = (is_output and getattr(options, option.name)) or ""
        if re.search(r"\.py([@:]\d\w*)?$", value):  # --profile DIR@30s, --compile-cache DIR:5G
            raise LaunchError(
                f"{option.long} {value} is the name of a Python program, not of output; write "
                f"{option.long} {option.metavar} PROGRAM"
            )


def _check_contradictions(options: Options) -> None:
    if options.collapse == "always" and options.no_prefix:
        raise LaunchError("--collapse always cannot be combined with --no-prefix")
    declared.call("refuse", options)


def _check_declared(options: Options, given: Set[str]) -> None:
    """Refuse options that violate `excludes` or `needs` of a declaration in options/."""
    by_name = {name: option for option in Options.declared.values() for name in option.names}

    def is_set(name: str) -> bool:
        if (option := by_name.get(name)) is None:  # of a feature that this copy lacks
            return False
        value = getattr(options, option.name)
        return bool(value) and value != option.default

    for option in Options.declared.values():
        excludes = str(getattr(options, option.name)).startswith(option.excludes_if)
        for text in option.excludes if excludes and is_set(option.long) else ():
            if is_set(text.partition(":")[0]):
                what = f"{option.long} {option.excludes_if}".rstrip()
                raise LaunchError(f"{what} cannot be combined with {text}")
        if option.needs and option.name in given and not is_set(option.needs.split()[0]):
            raise LaunchError(f"{option.long} needs {option.needs}")


def _check_lone(options: Options, given: Set[str], environ: Mapping[str, str]) -> None:
    """Refuse options that have no effect without another option, or without hosts."""
    if "host_rank" in given and options.num_hosts is None:
        raise LaunchError("--host-rank needs --num-hosts N and --coordinator HOST:PORT")
    if {"quiet", "verbose"} <= given:
        raise LaunchError("-q cannot be combined with -v")
    if options.hosts is None and known_schedulers.find_scheduler(environ) is None:
        _check_without_hosts(options, given)


def _check_without_hosts(options: Options, given: Set[str]) -> None:
    """Refuse options that only make sense with --hosts or an allocation."""
    if "via" in given:
        if scheduler := known_schedulers.CLIENTS.get(options.via or ""):
            raise LaunchError(
                f"--via {options.via}: no {scheduler.title} allocation here: run mcjax-launch in a "
                "job, not on a login node, or name hosts with --hosts"
            )
        raise LaunchError(f"--via {options.via}: no hosts to reach; name them with --hosts")
    whole, each = options.num_processes or 0, options.procs_per_host or 0
    spreads = options.num_hosts is not None or declared.find_choice(options)
    if "procs_per_host" in given and not spreads and whole > each:
        raise LaunchError(
            f"--procs-per-host {each}: this machine alone cannot take -n {whole}; add --hosts, or "
            "leave out --procs-per-host"
        )

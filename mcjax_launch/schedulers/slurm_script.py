"""Slurm: a batch script; pure."""

import math
import re
import shlex
from collections.abc import Sequence

from mcjax_launch.errors import LaunchError
from mcjax_launch.schedulers.size import Size

# Slurm counts them in 32 bits.
_MOST_MINUTES = 1 << 31


def script(command: Sequence[str], size: Size, name: str, options: Sequence[str]) -> str:
    """The batch script that runs a launcher in an allocation of this size.

    Args:
        command: of the launcher.
        size: of the allocation.
        name: of the job.
        options: more of sbatch's, such as `--partition=gpu`.

    Raises:
        LaunchError: the name, or one of the options, cannot stand in a line of its own.

    """
    _check(name, options)
    directives = [
        f"--job-name={name}",
        f"--nodes={size.hosts}",
        f"--ntasks-per-node={size.ranks}",
    ]
    if size.gpus:
        directives.append(f"--gpus-per-node={size.gpus}")
    if size.seconds is not None:
        minutes = math.ceil(size.seconds / 60) + 1
        directives.append(f"--time={minutes if minutes < _MOST_MINUTES else 'UNLIMITED'}")
    if size.restarts:
        directives.append("--requeue")
    if size.can_shrink:
        directives.append("--no-kill")  # keeps the allocation when a node fails
    directives += options
    lines = [f"#SBATCH {directive}" for directive in directives]
    return "\n".join(["#!/bin/bash", *lines, "", f"exec {shlex.join(command)}", ""])


def _check(name: str, options: Sequence[str]) -> None:
    if not re.fullmatch(r"[\w.:+@%-]+", name):
        raise LaunchError(f"--name {name}: use letters, digits and . _ - only")
    for option in options:
        if not re.match(r"--?[A-Za-z]", option) or not option.isprintable():
            raise LaunchError(
                f"--engine-option {option}: not an option of sbatch; write it as in "
                "--engine-option --partition=gpu"
            )

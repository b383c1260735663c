"""Slurm: a batch script; pure."""

import math
import shlex
from collections.abc import Sequence

from mcjax_launch.schedulers.size import Size


def script(command: Sequence[str], size: Size, name: str, options: Sequence[str]) -> str:
    """The batch script that runs a launcher in an allocation of this size.

    Args:
        command: of the launcher.
        size: of the allocation.
        name: of the job.
        options: more of sbatch's, such as `--partition=gpu`.

    """
    directives = [
        f"--job-name={name}",
        f"--nodes={size.hosts}",
        f"--ntasks-per-node={size.ranks}",
    ]
    if size.gpus:
        directives.append(f"--gpus-per-node={size.gpus}")
    if size.seconds is not None:
        directives.append(f"--time={math.ceil(size.seconds / 60) + 1}")
    if size.restarts:
        directives.append("--requeue")
    if size.can_shrink:
        directives.append("--no-kill")  # keeps the allocation when a node fails
    directives += options
    lines = [f"#SBATCH {directive}" for directive in directives]
    return "\n".join(["#!/bin/bash", *lines, "", f"exec {shlex.join(command)}", ""])

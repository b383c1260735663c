"""Slurm: the hosts of an allocation that we are in, and a batch script for one; pure."""

import math
import re
import shlex
from collections.abc import Mapping, Sequence

from mcjax_launch.errors import LaunchError
from mcjax_launch.job.hosts import Host, parse_list
from mcjax_launch.schedulers.size import Size


def inside(environ: Mapping[str, str]) -> bool:
    """Whether this is an allocation: the shell of salloc, or a batch script."""
    return "SLURM_JOB_ID" in environ and "SLURM_JOB_NODELIST" in environ


def allocated(environ: Mapping[str, str], slots: int | None) -> tuple[Host, ...]:
    """The nodes of the allocation with their tasks.

    Args:
        slots: ranks on each node, if the user says so; else as many as Slurm has tasks there,
            where it was told a number, and one where not.

    Raises:
        LaunchError: this is one of several tasks that srun has started.

    """
    if environ.get("SLURM_STEP_NUM_TASKS", "1") != "1":
        count = environ["SLURM_STEP_NUM_TASKS"]
        raise LaunchError(
            f"srun has started {count} launchers, one in each task: start one, without srun, in "
            "the shell of salloc or the batch script"
        )
    nodes = parse_list(environ["SLURM_JOB_NODELIST"], 1)
    tasks = [1] * len(nodes)
    if slots is not None:
        tasks = [slots] * len(nodes)
    elif "SLURM_NTASKS" in environ or "SLURM_NTASKS_PER_NODE" in environ:
        tasks = tasks_per_node(environ.get("SLURM_TASKS_PER_NODE", f"1(x{len(nodes)})"))
        if len(tasks) != len(nodes):  # of a step that has only some of the nodes
            tasks = [1] * len(nodes)
    return tuple(
        Host(name=node.name, slots=count) for node, count in zip(nodes, tasks, strict=True)
    )


def gpus(shown: str) -> dict[str, int]:
    """Each node's GPUs, out of what `scontrol show job -d` prints."""
    found: dict[str, int] = {}
    for nodes, resources in re.findall(r"^\s*Nodes=(\S+) .*GRES=(\S+)", shown, re.MULTILINE):
        count = sum(map(int, re.findall(r"\bgpu(?::[\w.-]+)?:(\d+)\(", resources)))
        found |= {node.name: count for node in parse_list(nodes, 1)}
    return found


def tasks_per_node(text: str) -> list[int]:
    """The numbers that Slurm writes as `2(x3),1`."""
    counts: list[int] = []
    for part in text.split(","):
        found = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part)
        if found is None:
            raise LaunchError(f"SLURM_TASKS_PER_NODE={text}: expected 2(x3),1")
        counts += [int(found[1])] * int(found[2] or 1)
    return counts


def script(command: Sequence[str], size: Size, name: str, options: Sequence[str]) -> str:
    """The batch script that runs `command`, a launcher's, in an allocation of this size.

    Args:
        options: more of sbatch's, as `--partition=gpu`.

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
    if size.goes_on:
        directives.append("--no-kill")  # the allocation stays although a node fails
    directives += options
    lines = [f"#SBATCH {directive}" for directive in directives]
    return "\n".join(["#!/bin/bash", *lines, "", f"exec {shlex.join(command)}", ""])

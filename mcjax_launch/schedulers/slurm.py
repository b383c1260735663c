"""Slurm: the hosts of the allocation that the launcher runs in."""

import re
from collections.abc import Mapping, Sequence

from mcjax_launch.errors import LaunchError
from mcjax_launch.job.hosts import Host, parse_list
from mcjax_launch.ranks import MOST_RANKS, whole_number

_SCONTROL_S = 20


def inside(environ: Mapping[str, str]) -> bool:
    """Whether this is an allocation: the shell of salloc, or a batch script."""
    return "SLURM_JOB_ID" in environ and "SLURM_JOB_NODELIST" in environ


def allocated(environ: Mapping[str, str], slots: int | None) -> tuple[Host, ...]:
    """The nodes of the allocation with their tasks; pure.

    Args:
        environ: the launcher's own variables.
        slots: ranks on each node, if the user says so; else the number of tasks that Slurm has
            there if the job asked for a number, and 1 if not.

    Raises:
        LaunchError: this is one of several tasks that srun has started.

    """
    if (count := environ.get("SLURM_STEP_NUM_TASKS", "1")) != "1":
        raise LaunchError(
            f"srun has started {count} launchers, one per task: start a single one, without srun, "
            "in the shell of salloc or in the batch script"
        )
    nodes = parse_list(environ["SLURM_JOB_NODELIST"], 1, "SLURM_JOB_NODELIST=")
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


def tasks_per_node(text: str) -> list[int]:
    """The numbers that Slurm writes as `2(x3),1`; pure.

    Raises:
        LaunchError: they are written in another way.

    """
    counts: list[int] = []
    for part in text.split(","):
        try:
            match = re.fullmatch(r"([0-9]+)(?:\(x([0-9]+)\))?", part)
            if match is None:
                raise ValueError("expected a list such as 2(x3),1")
            count = whole_number(match[1], 1, MOST_RANKS)
            counts += [count] * whole_number(match[2] or "1", 1, MOST_RANKS - len(counts))
        except ValueError as error:
            raise LaunchError(f"SLURM_TASKS_PER_NODE={text}: {error}") from None
    return counts


def with_gpus(hosts: Sequence[Host], environ: Mapping[str, str]) -> tuple[Host, ...]:
    """The nodes with the GPUs that Slurm has given the job there, as far as scontrol says.

    A step has to ask for them by number: it would inherit what the job asked for each task.
    """
    gpus = parse_gpus(_scontrol(environ["SLURM_JOB_ID"]))
    return tuple(host.replaced(gpus=gpus.get(host.name)) for host in hosts)


def _scontrol(job_id: str) -> str:
    """What scontrol shows of a job; nothing if it cannot."""
    import subprocess

    show = ["scontrol", "show", "job", "-d", job_id]
    try:
        ended = subprocess.run(show, capture_output=True, text=True, timeout=_SCONTROL_S)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return ended.stdout


def parse_gpus(shown: str) -> dict[str, int]:
    """Each node's GPUs, from the output of `scontrol show job -d`; pure."""
    gpus: dict[str, int] = {}
    for nodes, resources in re.findall(r"^[ \t]*Nodes=(\S+) .*GRES=(\S+)", shown, re.MULTILINE):
        count = sum(map(int, re.findall(r"\bgpu(?::[\w.-]+)?:(\d+)\(", resources)))
        gpus |= {node.name: count for node in parse_list(nodes, 1)}
    return gpus

"""Slurm: hosts of an allocation (salloc or a batch script), and agents by `srun`."""

import re
import subprocess
from collections.abc import Mapping

from mcjax_launch.errors import LaunchError
from mcjax_launch.job import allocation
from mcjax_launch.job.hosts import Host, parse_list
from mcjax_launch.ranks import MOST_RANKS, parse_whole_number

# How long scontrol may take to answer.
_ANSWER_S = 20.0


def find_hosts(environ: Mapping[str, str], slots: int | None) -> tuple[Host, ...]:
    """Return the nodes with their tasks and, if scontrol shows it, their number of GPUs.

    A step must request the GPUs by number: otherwise it would get the GPUs of one task.
    """
    nodes = parse_allocation(environ, slots)
    gpus = parse_gpus(_show_job(environ["SLURM_JOB_ID"]))
    return tuple(node.copy_with(gpus=gpus.get(node.name)) for node in nodes)


def _show_job(job: str) -> str:
    """Return what scontrol shows of a job; "" if it is missing, fails, or does not answer."""
    argv = ["scontrol", "show", "job", "-d", job]
    try:
        ended = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_ANSWER_S
        )
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return ""
    return ended.stdout if ended.returncode == 0 else ""


def make_srun_argv(host: Host, script: str) -> list[str]:
    """Return the command for a step of one task on one node of this allocation.

    Args:
        host: host from `find_hosts`.
        script: script for a POSIX shell, without single quotes.

    """
    here = ["--nodes=1", "--ntasks=1", f"--nodelist={host.name}"]
    # Next to other steps, with all of the job's resources on the node, and without MPI's setup.
    shared = ["--overlap", "--mpi=none", "--cpu-bind=none", "--unbuffered", "--export=ALL"]
    mine = [f"--gpus={host.gpus}"] if host.gpus else []
    return ["srun", *here, *mine, *shared, "sh", "-c", script]


def parse_allocation(environ: Mapping[str, str], slots: int | None) -> tuple[Host, ...]:
    """Return the nodes of the allocation with their tasks; pure.

    Args:
        environ: variables of the launcher.
        slots: ranks on each node; None for the number of tasks that the job requested there, or 1
            if it requested no number.

    Raises:
        LaunchError: srun has started several launchers, or a variable cannot be read.

    """
    if (count := environ.get("SLURM_STEP_NUM_TASKS", "1")) != "1":
        raise LaunchError(
            f"srun has started {count} launchers, one per task: start a single launcher, without "
            "srun, in the shell of salloc or in the batch script"
        )
    allocation.check_alone(environ, "the shell of salloc or in the batch script")
    nodes = parse_list(environ["SLURM_JOB_NODELIST"], 1, "SLURM_JOB_NODELIST=")
    tasks = [1] * len(nodes)
    if slots is not None:
        tasks = [slots] * len(nodes)
    elif "SLURM_NTASKS" in environ or "SLURM_NTASKS_PER_NODE" in environ:
        tasks = parse_task_counts(environ.get("SLURM_TASKS_PER_NODE", f"1(x{len(nodes)})"))
        if len(tasks) != len(nodes):  # they are of a step that has only some of the nodes
            tasks = [1] * len(nodes)
    return tuple(
        Host(name=node.name, slots=count) for node, count in zip(nodes, tasks, strict=True)
    )


def parse_task_counts(text: str) -> list[int]:
    """Parse Slurm's list of task counts: `2(x3),1` gives [2, 2, 2, 1]; pure.

    Raises:
        LaunchError: the text has another form.

    """
    counts: list[int] = []
    for part in text.split(","):
        try:
            match = re.fullmatch(r"([0-9]+)(?:\(x([0-9]+)\))?", part)
            if match is None:
                raise ValueError("expected a list such as 2(x3),1")
            count = parse_whole_number(match[1], 1, MOST_RANKS)
            counts += [count] * parse_whole_number(match[2] or "1", 1, MOST_RANKS - len(counts))
        except ValueError as error:
            raise LaunchError(f"SLURM_TASKS_PER_NODE={text}: {error}") from None
    return counts


def parse_gpus(shown: str) -> dict[str, int]:
    """Return the number of GPUs of each node from the output of `scontrol show job -d`; pure."""
    gpus: dict[str, int] = {}
    for nodes, resources in re.findall(r"^[ \t]*Nodes=(\S+) .*GRES=(\S+)", shown, re.MULTILINE):
        count = sum(map(int, re.findall(r"\bgpu(?::[\w.-]+)?:(\d+)\(", resources)))
        gpus |= {node.name: count for node in parse_list(nodes, 1)}
    return gpus

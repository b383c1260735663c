"""`--emit`: the script or manifest with which a scheduler runs the same command line."""

import os
import sys
from dataclasses import dataclass
from typing import Literal

from mcjax_launch.errors import LaunchError
from mcjax_launch.job.command_line import CommandLine
from mcjax_launch.job.job import GRACE_S
from mcjax_launch.ranks import counted
from mcjax_launch.schedulers import kubernetes, slurm_script, tpu
from mcjax_launch.schedulers.size import Size

# Options that give the size or go to the scheduler: not for the launcher that it starts.
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
        "image",
        "name",
        "namespace",
        "tpu",
        "engine_option",
        "dry_run",
    }
)
_DONE_BY_JOBSET = frozenset({"max_restarts"})
# How long pods may come after one another: a node pool that grows, an image of many gigabytes.
_PATIENCE_S = 1800


@dataclass(frozen=True, kw_only=True)
class Submission:
    """A job for a scheduler. Durations are in seconds; None where the user says nothing.

    Args:
        command_line: of the launcher that is to run it.
        num_hosts: nodes, or pods.
        num_processes: ranks in the whole job.
        procs_per_host: ranks on each of the hosts.
        gpus_per_process: GPUs of each rank; 0 for none.
        timeout: of each attempt.
        start_timeout: until all ranks have joined.
        grace: from asking the ranks to exit to killing them.
        max_restarts: how often the job may be started again.
        min_hosts: hosts that a restart can do with.
        relay: the launcher brings the ranks and their coordinator together.
        name: of the job; after its program if None.
        namespace: of Kubernetes.
        tpu: type and topology of its slices, if they are of TPUs.
        slices: how many they are.
        image: of the containers.
        engine_options: what the scheduler is to be told beside that; each reads them its own way.

    """

    command_line: CommandLine
    num_hosts: int = 1
    num_processes: int | None = None
    procs_per_host: int | None = None
    gpus_per_process: int = 0
    timeout: float | None = None
    start_timeout: float | None = None
    grace: float | None = None
    max_restarts: int = 0
    min_hosts: int | None = None
    relay: bool = False
    name: str | None = None
    namespace: str | None = None
    tpu: str | None = None
    slices: int = 1
    image: str | None = None
    engine_options: tuple[str, ...] = ()


def emit(kind: Literal["slurm", "jobset", "job"], submission: Submission) -> str:
    """The script or manifest.

    Raises:
        LaunchError: something that the scheduler needs is missing or invalid.

    """
    if submission.tpu is not None and kind != "jobset":
        raise LaunchError("--tpu needs --emit jobset, which keeps each slice on one node pool")
    size = size_of(submission)
    words = submission.command_line.words
    name = submission.name or default_name(submission.command_line.program[0])
    if kind == "slurm":
        left_out = _NOT_PASSED_ON - {"coordinator"} if submission.relay else _NOT_PASSED_ON
        command = [*_this_launcher(), *words(left_out)]
        return slurm_script.script(command, size, name, submission.engine_options)
    if size.can_shrink:
        raise LaunchError(f"--emit {kind}: a job needs all its pods; leave out --min-hosts")
    if not submission.image:
        raise LaunchError(f"--emit {kind} needs --image: an image with mcjax-launch and JAX")
    tpus, left_out = None, _NOT_PASSED_ON | _DONE_BY_JOBSET
    if submission.tpu is not None:
        if submission.gpus_per_process:
            raise LaunchError("--tpu cannot be combined with --gpus-per-process")
        tpus = tpu.parse(submission.tpu, size.hosts, submission.slices)
        left_out |= {"slices"}  # as JAX finds them
    given, patience = _patience(submission)
    workload = kubernetes.Workload(
        command=[*given, *words(left_out)],
        size=size,
        name=name,
        namespace=submission.namespace,
        image=submission.image,
        patience=patience,
        tpus=tpus,
        changes=submission.engine_options,
    )
    return kubernetes.job(workload) if kind == "job" else kubernetes.jobset(workload)


def _patience(submission: Submission) -> tuple[list[str], float]:
    """The time that all pods have to come, as words where the user gives none, and in seconds."""
    given = {name for name, words in submission.command_line.options if words}
    if given & {"start_timeout", "no_hook"}:
        return [], submission.start_timeout or _PATIENCE_S
    return ["--start-timeout", f"{_PATIENCE_S // 60}m"], _PATIENCE_S


def size_of(submission: Submission) -> Size:
    """How big the job is.

    Raises:
        LaunchError: hosts and ranks per host do not make the ranks of the whole job.

    """
    hosts, whole = submission.num_hosts, submission.num_processes
    ranks = submission.procs_per_host or (whole or hosts) // hosts
    if whole is not None and whole != hosts * ranks:
        raise LaunchError(
            f"--emit: -n {whole} does not fit {counted(hosts, 'host')} with "
            f"{counted(ranks, 'rank')} each; set --num-hosts and --procs-per-host"
        )
    attempts = submission.max_restarts + 1
    grace = GRACE_S["TERM"] if submission.grace is None else submission.grace
    seconds = submission.timeout
    if seconds is not None:
        seconds = (seconds + grace) * attempts
    return Size(
        hosts=hosts,
        ranks=ranks,
        gpus=submission.gpus_per_process * ranks,
        seconds=seconds,
        grace=grace,
        restarts=submission.max_restarts,
        can_shrink=submission.min_hosts is not None,
    )


def default_name(program: str) -> str:
    """A name that every scheduler accepts, after the program."""
    stem = os.path.basename(program).removesuffix(".py").lower()
    clean = "".join(char if char.isascii() and char.isalnum() else "-" for char in stem).strip("-")
    return clean if clean[:1].isalpha() else f"job-{clean}".rstrip("-")


def _this_launcher() -> list[str]:
    """The launcher, by a path that the nodes of a cluster share."""
    path = os.path.abspath(sys.argv[0])
    if os.path.isfile(path) and os.access(path, os.X_OK) and not path.endswith("__main__.py"):
        return [path]
    return [sys.executable, "-m", "mcjax_launch"]

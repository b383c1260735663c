"""The ranks of a job with --preview: some of them, on this machine, each alone."""

from __future__ import annotations

import math
from collections.abc import Sequence

from mcjax_launch.errors import LaunchError
from mcjax_launch.features.preview.options import PreviewOptions, parse_memory
from mcjax_launch.job.hosts import LOCAL, Host
from mcjax_launch.job.job import Job
from mcjax_launch.job.plan import count_ranks_by_host
from mcjax_launch.options.options import Options
from mcjax_launch.ranks import format_count

_MOST_RANKS = 64


def compute_sizes(options: Options, hosts: Sequence[Host]) -> tuple[int, ...]:
    """Return the number of ranks on each host; without named hosts each rank has its own."""
    count = options.num_processes or sum(host.slots for host in hosts)
    if [host.name for host in hosts] != [LOCAL]:
        return tuple(count_ranks_by_host(count, hosts).values())
    each = options.procs_per_host or 1
    return tuple(min(each, count - first) for first in range(0, count, each))


def choose_ranks(job: Job, sizes: tuple[int, ...]) -> Job:
    """Return the job in which only the ranks of --preview run.

    Args:
        job: the whole job, with all its ranks on this machine.
        sizes: number of ranks on each host of the whole job.

    Raises:
        LaunchError: there are too many ranks or only one, or too few chips for the whole job.

    """
    own = PreviewOptions.of(job)
    ranks = job.expand_ranks("--preview", own.preview)
    if sum(sizes) == 1:
        raise LaunchError("--preview: a job of one rank needs none; add -n N")
    if len(ranks) > _MOST_RANKS:
        raise LaunchError(
            f"--preview: {len(ranks)} ranks, and at most {_MOST_RANKS} run; name some, such as "
            "--preview 0,17"
        )
    devices = job.cpu_devices or 1
    if own.on is not None and parse_memory(own.on) is None:
        _check_chips(own.on, sum(sizes), devices)
    return job.copy_with(
        alone=tuple(sorted(ranks)),
        host_sizes=sizes,
        cpu_devices=devices,
        compile_once="off",
        preload=(),
        mtls="off",
        survives=len(ranks) > 1,
    )


def _check_chips(slice_: str, ranks: int, devices: int) -> None:
    name, _, shape = slice_.partition(":")
    there_are = math.prod(map(int, shape.split("x")))
    if name in ("v2", "v3"):
        there_are *= 2  # a chip is two devices
    if there_are < ranks * devices:
        raise LaunchError(
            f"--on {slice_}: {format_count(there_are, 'chip')}, and the job has "
            f"{ranks} ranks of {format_count(devices, 'device')}"
        )

"""The job of a check: our own program as the ranks that a plain run would start."""

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from mcjax_launch.check import global_sum
from mcjax_launch.check.found import OWN_VARIABLES, GlobalSum, HostFound, Timing
from mcjax_launch.check.survey import Interrupted
from mcjax_launch.diagnosis.attempt import Attempt
from mcjax_launch.diagnosis.root_cause import Stopped
from mcjax_launch.errors import LaunchError
from mcjax_launch.job.hosts import Host
from mcjax_launch.job.job import Job
from mcjax_launch.launcher import restarts
from mcjax_launch.launcher.front import Front
from mcjax_launch.protocol import exit_status
from mcjax_launch.protocol.messages import Devices
from mcjax_launch.protocol.signals import ENDING
from mcjax_launch.transport.client import Transport

# What nobody has limited: ranks that do not find one another would wait for five minutes.
_START_S, _WHOLE_S = 60.0, 120.0
_GRACE_S = 1.0  # our ranks have nothing to save
_LARGE = 64 << 20
_LEAST_LARGE = 1 << 20
_SIZES = 2  # are timed: little, and this much
# How many times over a device's part is in memory while it is timed.
_COPIES = 4


def job_of_check(job: Job) -> Job:
    """A job with what a plain run would have, whose program is ours.

    Args:
        job: of the command line, without a program.

    """
    program = os.path.abspath(global_sum.__file__)
    return Job(
        program=(os.path.basename(program),),
        num_processes=job.num_processes,
        python=job.python,
        python_given=job.python_given,
        python_without_jax=job.python_without_jax,
        chdir=job.chdir,
        env=(*OWN_VARIABLES, *job.env),
        cpu_devices=job.cpu_devices,
        gpus_per_process=job.gpus_per_process,
        tpu_chips_per_process=job.tpu_chips_per_process,
        slices=job.slices,
        cpu_transfers=job.cpu_transfers,
        bind_cores=job.bind_cores,
        coordinator=job.coordinator,
        relay=job.relay,
        hook=job.hook,
        sync=(program,),
        timeout=job.timeout or _WHOLE_S,
        start_timeout=(job.start_timeout or _START_S) if job.hook else None,
        grace=_GRACE_S if job.grace is None else job.grace,
        record=True,  # which keeps what ranks print
        show=frozenset(),
        color=job.color,
        quiet=not job.verbose,
        verbose=job.verbose,
    )


def size_for(hosts: Sequence[HostFound], devices: int) -> int:
    """Bytes of the greater sum from each device: less than usual where memory is short.

    Args:
        devices: of a rank.

    """
    size = _LARGE
    for host in hosts:
        free = host.surveyed.free_kib << 10 if host.surveyed is not None else 0
        while free and size > _LEAST_LARGE and size * devices * host.ranks * _COPIES > free:
            size //= 2
    return size


def run(
    job: Job, hosts: Sequence[Host], transport: Transport, size: int, front: Front
) -> tuple[GlobalSum, dict[str, tuple[Devices, ...]]]:
    """Run the job.

    Args:
        job: see `job_of_check`.
        size: see `size_for`.
        front: of this process.

    Returns:
        what came of it, and the devices of each host.

    Raises:
        Interrupted: the user has ended it.

    """
    attempts: list[Attempt] = []
    without = () if job.hook else (global_sum.NO_HOOK,)
    job = job.replaced(program=(job.program[0], str(size), *without))
    hosts = [host.replaced(chdir=None) for host in hosts]
    why_not = ""
    try:
        outcome = restarts.run(job, hosts, transport, ended=attempts.append, front=front)
        why_not = outcome.message if outcome.status else ""
    except LaunchError as error:
        why_not = str(error)
    if signum := _signal_of(attempts):
        raise Interrupted(signum, said=True)
    ranks = [run for attempt in attempts for run in attempt.state.ranks.values()]
    printed = [(run.host, list(messages(run.stdout))) for run in ranks]
    result = result_of([told for _, told in printed], why_not)
    return result, devices_of(printed)


def _signal_of(attempts: Sequence[Attempt]) -> int:
    """The signal by which the user has ended a job; 0 if that is not what ended it."""
    ending = attempts[-1].summary.ending if attempts else None
    if not isinstance(ending, Stopped):
        return 0
    return next((one for one in ENDING if ending.status == exit_status.of_signal(one)), 0)


def messages(text: str) -> Iterator[dict[str, Any]]:
    """What a rank has told, of all that it printed."""
    for line in text.splitlines():
        _, mark, rest = line.partition(global_sum.MARK)
        if mark:
            try:
                told = json.loads(rest)
            except ValueError:  # the end of a line that has begun with something else
                continue
            if isinstance(told, dict):
                yield told


def result_of(printed: Sequence[Sequence[dict[str, Any]]], why_not: str) -> GlobalSum:
    """What came of the sum; pure.

    Args:
        printed: what each rank has told.
        why_not: how the job ended, unless it ended well.

    """
    told = [one for rank in printed for one in rank]
    values = [one["value"] for one in told if "value" in one]
    sizes = dict.fromkeys(one["size"] for one in told if "size" in one)
    of_first = [one for one in printed[0] if "size" in one] if printed else []
    if not why_not and (len(values) < len(printed) or len(sizes) < _SIZES):
        why_not = "not all ranks have told their results"

    def slowest(name: str) -> float:
        return max((float(one[name]) for one in told if name in one), default=0.0)

    return GlobalSum(
        why_not=why_not,
        started=bool(printed),
        ranks=len(printed),
        devices=max((one["devices_in_all"] for one in told if "devices_in_all" in one), default=0),
        slices=_slices_of_ranks([one for one in told if "slices" in one]),
        values=tuple(sorted(set(values))),
        right=all(one["right"] for one in told if "right" in one),
        import_s=slowest("import_s"),
        initialize_s=slowest("initialize_s"),
        devices_s=slowest("devices_s"),
        first_s=slowest("first_s"),
        timings=tuple(Timing(one["size"], one["on"], one["seconds"]) for one in of_first),
    )


def _slices_of_ranks(told: Sequence[dict[str, Any]]) -> tuple[int, ...]:
    """The slice of each rank, each of which has told its own number and the slices by number."""
    processes = [one["process"] for one in told]
    slices = told[0]["slices"] if told else ()
    if sorted(processes) != list(range(len(slices))):
        return tuple(slices)
    return tuple(slices[process] for process in processes)


def devices_of(
    printed: Iterable[tuple[str, Sequence[dict[str, Any]]]],
) -> dict[str, tuple[Devices, ...]]:
    """The devices of each host, by kind; pure.

    Args:
        printed: the host of each rank, and what the rank has told.

    """
    counts: dict[str, Counter[tuple[str, str]]] = {}
    for host, told in printed:
        found = [tuple(kind) for one in told for kind in one.get("devices", ())]
        counts.setdefault(host, Counter()).update(found)
    return {
        host: tuple(Devices(*kind, count) for kind, count in found.items())
        for host, found in counts.items()
    }

"""JAX's messages in a rank that has lost another rank, and the processes they name; pure.

Tasks are JAX's processes: `1` in new releases, `/job:jax_worker/replica:0/task:1` in old ones.

XLA's messages on GPUs are taken from its source (openxla/xla, 2026; the files are named below) and
from reports of users (jax-ml/jax 19307, 22740, 38503, EnzymeAD/Enzyme-JAX 623). They have not been
seen here, for want of GPUs.
"""

import re
from typing import NamedTuple

# Texts with which JAX ends the process because of a lost peer.
_ENDED_BY_JAX = (
    "Terminating process because the JAX distributed service detected fatal errors",
    "another task died",
    "Shutdown barrier has failed",
    "stopped sending heartbeats",
    # xla/backends/gpu/collectives/gpu_cliques.cc, with --xla_gpu_nccl_terminate_on_error
    "Terminating process due to async GPU clique error",
    "abort the process to avoid infinite hangs",
)
# Texts in an exception, or in the last words of a process, when a peer did not come in time.
_TIMED_OUT = (
    "Timed out waiting",
    "Barrier timed out",
    # xla/service/rendezvous.cc, with --xla_gpu_nccl_termination_timeout_seconds
    "Exiting to ensure a consistent program state",
    "abort the process to avoid infinite hangs",  # xla/runtime/hang_watchdog.cc
)
# The same before a job's first collective: Gloo's key, or that of NCCL's clique
# (xla/backends/gpu/collectives/gpu_clique_key.cc). Any other key is the program's own.
_SET_UP_TIMED_OUT = r"GetKeyValue\(\) timed out with key: (?:\w+:)?(?:gloo/|devices=\[)"
# Gloo's key holds the devices, and the index of the device whose address was missing; the devices
# of process P have the numbers from 2048 P on.
_GLOO_KEY = r"GetKeyValue\(\) timed out with key: (?:\w{1,40}:)?gloo/([\d,]{1,90000})/(\d{1,9})\b"
_DEVICES_OF_PROCESS = 2048
# The same when a backend is started, or a program is compiled: the key names the late process.
# Process 0 collects the local topologies, with an error for each missing one, and the other
# processes wait for its global one (xla/pjrt/distributed/topology_util.cc). Each process tunes a
# share of a program's kernels (xla/backends/gpu/autotuner, gemm_fusion_autotuner.cc before).
_MISSING_KEY = (
    r"GetKeyValue\(\) timed out with key: (?:\w{1,40}:)?"
    r"(?:(local|global)_topology/(\w{1,40})(?:/(\d{1,9}))?|\w{0,60}autotun[\w-]{1,300}_(\d{1,9})\b)"
)
# A time-out, but only in an exception of initialize(): later it may be about something else.
_TIMED_OUT_JOINING = "DEADLINE_EXCEEDED"
_JAX_EXCEPTIONS = ("JaxRuntimeError", "XlaRuntimeError")
# Libraries whose texts count in exceptions that are not JAX's.
_SPEAKERS = ("Gloo", "NCCL", "Nccl", "clique")
# Texts in an exception of a collective.
_MARKS = (
    "Connection closed by peer",
    "Connection reset by peer",
    "Socket closed",
    "Connection refused",
    "Connection closed by remote peer",  # NCCL's
    "remote process exited or there was a network error",  # ncclRemoteError
    "NcclCommunicator aborted",  # xla/backends/gpu/collectives/nccl_communicator.cc
    "ncarnation id",  # is stale, or its task is not connected: gpu_cliques.cc
    *_TIMED_OUT,
    *_ENDED_BY_JAX,
)
# Patterns, compiled only after a failure, so that no start of a job waits for it.
_UNHEALTHY = r"stopped sending heartbeats\):\n((?:\S+\n)+)"
_EXIT_BARRIER = (
    r"Shutdown barrier[^@]{0,800}?The first task at the barrier: (\S+?)\. "
    r"Some timed out task names:\n((?:\S+\n)+)"
)
_PROGRAMS_BARRIER = (
    r"Barrier timed out\. Id: (?!Shutdown::)(.{1,200}?)::\d+\.[^@]{0,800}?"
    r"Some timed out task names:\n((?:\S+\n)+)"
)


class ExitBarrier(NamedTuple):
    """A timeout of JAX's exit barrier: process `first` waited for the processes `late`."""

    first: int | None
    late: tuple[int, ...]


class MissingKey(NamedTuple):
    """A key in JAX's key-value store that processes did not set in time.

    Args:
        platform: platform of the backend that they did not start in time; "" if they did not tune
            kernels in time.
        late: numbers of these processes.

    """

    platform: str
    late: tuple[int, ...]


class ProgramsBarrier(NamedTuple):
    """A timeout of a barrier in the user's program: the processes `late` did not reach it."""

    name: str
    late: tuple[int, ...]


def is_of_lost_peer(name: str, message: str, *, joining: bool = False) -> bool:
    """Return whether an exception is JAX's report of a lost peer.

    Args:
        name: name of the exception's class.
        message: message of the exception, with or without that name.
        joining: True if it was raised in initialize().

    """
    if re.search(_MISSING_KEY, message) is not None:  # where backends start, in a RuntimeError
        return True
    if name not in _JAX_EXCEPTIONS and not any(speaker in message for speaker in _SPEAKERS):
        return False
    if any(mark in message for mark in _MARKS) or (joining and _TIMED_OUT_JOINING in message):
        return True
    return re.search(_SET_UP_TIMED_OUT, message) is not None


def says_ended_by_jax(stderr: str) -> bool:
    """Return whether a process's stderr shows that JAX ended it because of another process."""
    return any(mark in stderr for mark in _ENDED_BY_JAX)


def says_timed_out(text: str) -> bool:
    """Return whether a text reports that a collective, or its setup, timed out."""
    if any(mark in text for mark in _TIMED_OUT) or find_missing_key(text) is not None:
        return True
    return re.search(_SET_UP_TIMED_OUT, text) is not None


def find_missing_key(text: str) -> MissingKey | None:
    """Return the key that processes did not set in time; None if the text reports none."""
    found = re.findall(_MISSING_KEY, text)
    local = [groups for groups in found if groups[0] == "local"]
    # A wait for the global topology is one for process 0, which may itself wait for another.
    first = (local or found or [None])[0]
    if first is None:
        return None
    late = {int(groups[2] or groups[3] or 0) for groups in found if groups[:2] == first[:2]}
    return MissingKey(first[1], tuple(sorted(late)))


def find_late_process(text: str) -> int | None:
    """Return the process that was missing when Gloo connected the processes of a collective.

    None if the text does not report that.
    """
    match = re.search(_GLOO_KEY, text)
    devices = match[1].split(",") if match is not None else []
    at = int(match[2]) if match is not None else 0
    return int(devices[at]) // _DEVICES_OF_PROCESS if at < len(devices) and devices[at] else None


def find_silent_process(text: str) -> int | None:
    """Return the process that stopped sending heartbeats; None if the text names none."""
    match = re.search(_UNHEALTHY, text)
    return _parse_number(match[1].split()[0]) if match is not None else None


def find_failed_exit_barrier(text: str) -> ExitBarrier | None:
    """Return the timeout of JAX's exit barrier that a text reports; None if there is none."""
    match = re.search(_EXIT_BARRIER, text)
    return (
        ExitBarrier(_parse_number(match[1]), _parse_numbers(match[2]))
        if match is not None
        else None
    )


def find_failed_programs_barrier(text: str) -> ProgramsBarrier | None:
    """Return the timeout of a user program's barrier that a text reports; None if there is none."""
    match = re.search(_PROGRAMS_BARRIER, text)
    return ProgramsBarrier(match[1], _parse_numbers(match[2])) if match is not None else None


def _parse_numbers(tasks: str) -> tuple[int, ...]:
    numbers = (_parse_number(task) for task in tasks.split())
    return tuple(number for number in numbers if number is not None)


def _parse_number(task: str) -> int | None:
    match = re.search(r"(?<!\d)(\d{1,9})$", task)
    return int(match[1]) if match is not None else None

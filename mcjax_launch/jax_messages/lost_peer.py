"""JAX's messages in a rank that has lost another, and which one they name; pure.

Tasks are JAX's processes: `1` in new releases, `/job:jax_worker/replica:0/task:1` in old ones.

What XLA says on GPUs is read from its source (openxla/xla, 2026), the files are named below, and
from reports of users (jax-ml/jax 19307, 22740, 38503, EnzymeAD/Enzyme-JAX 623): it has not been
seen here, for want of GPUs.
"""

import re
from typing import NamedTuple

# Where JAX ends the process for that reason.
_ENDED_BY_JAX = (
    "Terminating process because the JAX distributed service detected fatal errors",
    "another task died",
    "Shutdown barrier has failed",
    "stopped sending heartbeats",
    # xla/backends/gpu/collectives/gpu_cliques.cc, with --xla_gpu_nccl_terminate_on_error
    "Terminating process due to async GPU clique error",
    "abort the process to avoid infinite hangs",
)
# In an exception, or in the last words of a process, where a peer did not come in time.
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
# Gloo's has the devices and whose address, of these, was not there: process P's from 2048 P on.
_GLOO_KEY = r"GetKeyValue\(\) timed out with key: (?:\w{1,40}:)?gloo/([\d,]{1,90000})/(\d{1,9})\b"
_DEVICES_OF_PROCESS = 2048
# The same where a backend is started, or a program is compiled: the key names the process that has
# not come. Process 0 collects the local topologies, with an error for each that is missing, and the
# others wait for its global one (xla/pjrt/distributed/topology_util.cc). Each process tunes a share
# of a program's kernels (xla/backends/gpu/autotuner, gemm_fusion_autotuner.cc before).
_MISSING_KEY = (
    r"GetKeyValue\(\) timed out with key: (?:\w{1,40}:)?"
    r"(?:(local|global)_topology/(\w{1,40})(?:/(\d{1,9}))?|\w{0,60}autotun[\w-]{1,300}_(\d{1,9})\b)"
)
# In an exception of initialize() only: later on it may be about something else.
_TIMED_OUT_JOINING = "DEADLINE_EXCEEDED"
_JAX_EXCEPTIONS = ("JaxRuntimeError", "XlaRuntimeError")
# Who speaks, where that is not an exception of JAX's.
_SPEAKERS = ("Gloo", "NCCL", "Nccl", "clique")
# In an exception of a collective.
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
# Patterns, compiled where a job has failed: its start is waited for.
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
    """JAX's barrier at the exit has failed: `first` waited there for the `late` processes."""

    first: int | None
    late: tuple[int, ...]


class MissingKey(NamedTuple):
    """What processes did not tell the others in time.

    Args:
        platform: they did not start a backend for this; "" if they did not tune kernels.
        late: the processes.

    """

    platform: str
    late: tuple[int, ...]


class ProgramsBarrier(NamedTuple):
    """A barrier of the program's own has failed: the `late` processes did not reach it in time."""

    name: str
    late: tuple[int, ...]


def is_of_lost_peer(name: str, message: str, *, joining: bool = False) -> bool:
    """Whether an exception is JAX's about the loss of a peer.

    Args:
        name: of its class.
        message: with or without that name.
        joining: it was raised in initialize().

    """
    if re.search(_MISSING_KEY, message) is not None:  # where backends start, in a RuntimeError
        return True
    if name not in _JAX_EXCEPTIONS and not any(speaker in message for speaker in _SPEAKERS):
        return False
    if any(mark in message for mark in _MARKS) or (joining and _TIMED_OUT_JOINING in message):
        return True
    return re.search(_SET_UP_TIMED_OUT, message) is not None


def says_ended_by_jax(stderr: str) -> bool:
    """Whether JAX has ended this process because of another."""
    return any(mark in stderr for mark in _ENDED_BY_JAX)


def says_timed_out(text: str) -> bool:
    """Whether a collective, or what sets it up, gave up waiting for a peer."""
    if any(mark in text for mark in _TIMED_OUT) or missing_key(text) is not None:
        return True
    return re.search(_SET_UP_TIMED_OUT, text) is not None


def missing_key(text: str) -> MissingKey | None:
    """What some processes did not tell the others, if one of these gave up waiting for it."""
    found = re.findall(_MISSING_KEY, text)
    local = [one for one in found if one[0] == "local"]
    # Who waits for the global one waits for process 0, which may itself wait for another.
    first = (local or found or [None])[0]
    if first is None:
        return None
    late = {int(one[2] or one[3] or 0) for one in found if one[:2] == first[:2]}
    return MissingKey(first[1], tuple(sorted(late)))


def late_for_gloo(text: str) -> int | None:
    """The process that Gloo gave up waiting for when it connected those of a collective."""
    match = re.search(_GLOO_KEY, text)
    devices = match[1].split(",") if match is not None else []
    at = int(match[2]) if match is not None else 0
    return int(devices[at]) // _DEVICES_OF_PROCESS if at < len(devices) and devices[at] else None


def silent_process(text: str) -> int | None:
    """The process that stopped sending heartbeats, if one did."""
    match = re.search(_UNHEALTHY, text)
    return _number(match[1].split()[0]) if match is not None else None


def failed_exit_barrier(text: str) -> ExitBarrier | None:
    """The barrier at the exit, if it has failed."""
    match = re.search(_EXIT_BARRIER, text)
    return ExitBarrier(_number(match[1]), _numbers(match[2])) if match is not None else None


def failed_programs_barrier(text: str) -> ProgramsBarrier | None:
    """A barrier of the program's own that has failed."""
    match = re.search(_PROGRAMS_BARRIER, text)
    return ProgramsBarrier(match[1], _numbers(match[2])) if match is not None else None


def _numbers(tasks: str) -> tuple[int, ...]:
    numbers = (_number(task) for task in tasks.split())
    return tuple(number for number in numbers if number is not None)


def _number(task: str) -> int | None:
    match = re.search(r"(?<!\d)(\d{1,9})$", task)
    return int(match[1]) if match is not None else None

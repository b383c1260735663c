"""Messages between the launcher and an agent: the protocol's specification.

The launcher and its agents have the same version, because the launcher sends the agent's code.
VERSION is checked nevertheless, in case the launcher's files are replaced while they are read.
Names of seconds end in `_s`; ranks are process ids of the job.
"""

from __future__ import annotations

from .codec import Malformed, Message, Nested
from .exit_status import MOST_STATUS
from .hook_messages import HookMessage
from .rank_process import RankSettings

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import ClassVar

VERSION = 9

_MOST_SIGNAL = 64
_MOST_PORT = 65_535


class ToAgent(Message):
    """Message from the launcher to an agent."""


class Question(ToAgent):
    """Message that the agent answers exactly once.

    RequestStacks is no Question, because an agent may answer two requests together. Refused does
    not count as the answer, because it may arrive before the question.
    """


class ToLauncher(Message):
    """Message from an agent to the launcher.

    Attributes:
        answers: class of the Question that this message answers; None if it answers none.

    """

    if TYPE_CHECKING:  # a class variable, not a field
        answers: ClassVar[type[Question] | None]
    answers = None

    @property
    def about(self) -> Iterable[int]:
        """Ranks whose state the message reports: its `rank` or `ranks`; () if it has none."""
        if "ranks" in self._fields:
            return tuple(self.__dict__["ranks"])
        return (self.__dict__["rank"],) if "rank" in self._fields else ()


# --- launcher to agent ---


class StageEntry(ToAgent):
    """File, folder or link for the staging folder; a file's content follows as raw frames.

    `target` is a link's target. `written_ns` is the modification time of a file, in ns since 1970.

    Args:
        checksum: checksum of a file's content, under which the host keeps it; "" to keep nothing.
        size: number of bytes of that content.

    """

    path: str
    kind: str  # "file", "folder" or "link"
    mode: int = 0o600
    target: str = ""
    written_ns: int = 0
    checksum: str = ""
    size: int = 0


class StageEntries(ToAgent):
    """Everything to stage; the host may keep the files' contents. Travels as Compressed.

    The agent answers the Prepare that follows with Lacks if it does not keep all of them. The
    launcher then sends the missing entries with their contents, and Prepare again.
    """

    entries: tuple[StageEntry, ...]


class Compressed(ToAgent):
    """Long message, as `compression` packs it."""

    packed: str


class Bind(Nested):
    """Address and port to reserve for the coordinator; "" for all addresses, 0 for a free port."""

    host: str
    port: int


class Prepare(Question):
    """Request for facts and ports of a host: answered by HostFacts, Lacks or Refused.

    Args:
        remote: True if the agent is on another machine than the launcher.
        command: PROGRAM if the ranks' Python does not run it; else None.
        wrappers: commands under which ranks run (--wrap).
        program: PROGRAM if it is a Python file; else None.
        missing: advice if PROGRAM's file is missing; "" if the agent is to find a likely mistake.
        pythons: interpreters for the ranks, of which the first that exists is used; () if not
            needed.
        without_jax: message if a program seems to need jax and that Python has none; "" to skip the
            check.
        env: variables that the user has set for the ranks.
        chdir, chdir_given: working directory, and True if the user has named it.
        coordinator: address to reserve for the coordinator, on rank 0's host; None elsewhere.
        listen: True to listen at `coordinator` for test connections from other hosts.
        describe: True to report the addresses by which other hosts can reach this host.
        towards: address of the coordinator if other launchers run the other hosts; else None.
        transfer_ports, tpu_ports: numbers of ports to reserve.
        gpus: True to report the GPUs.
        bind_cores: "on", "off" or "auto", as in Job; decides whether to report the cores.
        tpus: True to report the TPU chips and the slice.
        any_order: True if rank 0 may run on another host than the one with `coordinator`.
        ranks: number of ranks for this host.
        jax: True to report the version of jax of the Python that runs PROGRAM.
        sources: paths of which the first that exists is reported as a checksum, that of PROGRAM.

    """

    remote: bool
    command: str | None
    program: str | None
    missing: str
    pythons: tuple[str, ...]
    without_jax: str
    env: dict[str, str]
    chdir: str
    chdir_given: bool
    coordinator: Bind | None = None
    listen: bool = False
    describe: bool = False
    towards: str | None = None
    transfer_ports: int = 0
    gpus: bool = False
    tpus: bool = False
    tpu_ports: int = 0
    any_order: bool = False
    bind_cores: str = "off"
    ranks: int = 1
    wrappers: tuple[str, ...] = ()
    jax: bool = False
    sources: tuple[str, ...] = ()


class TryCoordinator(Question):
    """Request to connect to each of these addresses: answered by CoordinatorTried.

    `after_s` is the number of seconds to wait first, so that not all hosts connect at once.
    """

    addresses: tuple[str, ...]
    port: int
    after_s: float = 0.0


class RankOrder(Nested):
    """Rank to start, with its command, variables, working directory and settings."""

    process_id: int
    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: str
    settings: RankSettings
    wrapper_words: int = 0  # number of words at the start of `argv` that belong to the wrapper


class Start(ToAgent):
    """Order to start the ranks.

    Args:
        env: variables of all ranks.
        defaults: variables of all ranks that the host's own variables override.
        hook: True to load the hook in ranks, and to remove misleading variables.
        coordinator_host: host of the coordinator, to be reached without a proxy.
        private: True if all ranks run on this host, so that the coordinator can use a unix socket.
        sample_every_s: seconds between reports of processor time and memory; 0 for no reports.
        grace_s, term_grace_s: seconds between asking ranks to end and killing them, after a
            failure, or if a signal ends the agent.
        on_failure: if a rank fails: "stop" ends the other ranks, with "continue" they go on.
        waits: True to prepare everything, and start the ranks after a Release.

    """

    ranks: tuple[RankOrder, ...]
    env: dict[str, str]
    defaults: dict[str, str]
    hook: bool
    coordinator_host: str
    private: bool
    sample_every_s: float
    grace_s: float
    term_grace_s: float
    on_failure: str = "stop"
    waits: bool = False


class Release(ToAgent):
    """Order to start the ranks of a Start that waits."""


class Credit(ToAgent):
    """Permission to send `count` more bytes of output."""

    count: int

    def check(self) -> None:
        """Reject a negative number of bytes."""
        if self.count < 0:
            raise Malformed(f"{self.count} bytes allowed")


class Forward(ToAgent):
    """Order to send a signal to every rank."""

    signum: int


#: Seconds after the first failure in which ranks that have not joined may fail in the same way.
ALIKE_S = 0.3


class Stop(ToAgent):
    """Order to end the ranks: send `signum` now, and SIGKILL after `grace_s` seconds.

    Processes that still exist `patience_s` seconds after SIGKILL count as unkillable. `settles` is
    True to wait a moment before `signum`, because other ranks may fail in the same way.
    """

    signum: int
    grace_s: float
    patience_s: float = 5.0
    settles: bool = False


class RequestStacks(ToAgent):
    """Request for the Python stacks of all ranks: answered by Stacks and StacksComplete.

    `all_threads` is True to ask for all threads although the main thread runs.
    """

    all_threads: bool


class RequestUsage(ToAgent):
    """Request for what ranks use: answered by Usage, at once and when the GPUs are read next."""


class Ping(ToAgent, ToLauncher):
    """Heartbeat, in both directions, over a network."""


# --- agent to launcher ---


class Loading(Message):
    """The loader runs on the host; it has the agent's code, or waits for it.

    It comes as a line of text, because the loader cannot import this module yet.
    """

    has_code: bool


class Greeting(ToLauncher):
    """First message of an agent; `portable` is True if its system is not Linux."""

    version: int
    portable: bool = False


class Refused(ToLauncher):
    """Notice that the job cannot run on this host; the launcher exits with `status`."""

    reason: str
    status: int

    def check(self) -> None:
        """Reject a status outside 1 to 255: status 0 would mean success."""
        if not 0 < self.status <= MOST_STATUS:
            raise Malformed(f"status {self.status}")


class VisibleGpus(Nested):
    """GPUs that a rank on a host would see by default.

    Args:
        ids: numbers of the GPUs, as JAX counts them.
        mig: UUIDs if these are MIG devices, of which CUDA gives a process only one; else ().
        counted: file, variable or program that lists the GPUs; "" if nothing mentions GPUs.
        near: CPU cores next to each GPU, in the kernel's notation (`0-15,128-143`); () if any are
            unknown.
        memory_set: True if the rank's variables say how much of a GPU's memory it allocates.

    """

    ids: tuple[int, ...] = ()
    mig: tuple[str, ...] = ()
    counted: str = ""
    near: tuple[str, ...] = ()
    memory_set: bool = False

    def check(self) -> None:
        """Check that `near` and `mig` are each empty or as long as `ids`."""
        if len(self.near) not in (0, len(self.ids)):
            raise Malformed(f"{len(self.ids)} GPUs, {len(self.near)} of them near to cores")
        if len(self.mig) not in (0, len(self.ids)):
            raise Malformed(f"{len(self.ids)} GPUs, {len(self.mig)} of them MIG devices")

    @property
    def count(self) -> int:
        """Number of GPUs."""
        return len(self.ids)


class Tpu(Nested):
    """TPU chips of a host, and the host's number in its slice.

    Args:
        chips: number of chips of the host.
        model: model of the chips, such as v5e.
        worker: number of the host in the slice; None if unknown.
        workers: number of hosts in the slice; 0 if unknown.
        slice_number: number of the slice, if there are several; else 0.

    """

    chips: int
    model: str
    worker: int | None = None
    workers: int = 0
    slice_number: int = 0


class Lacks(ToLauncher):
    """Answer to the first question: the numbers of StageEntries whose contents are missing."""

    answers = Question

    numbers: tuple[int, ...]


class HostFacts(ToLauncher):
    """Facts about a host, and the ports reserved for the job: the answer to Prepare.

    Args:
        python, cwd: path of the ranks' Python ("" if not needed), and their working directory.
        stage: path of the staging folder; "" if no files were sent.
        port: port reserved for the coordinator; 0 if none is reserved here.
        transfer_ports: reserved ports, one per rank; () if not requested.
        gpus: GPUs that ranks would see; no GPUs if not requested.
        platforms: value of JAX_PLATFORMS that ranks inherit; "" if unset.
        tpu_ports: ports reserved for libtpu until the ranks start.
        cores: hardware threads of each physical core that ranks may use; () if ranks are not bound.
        address: source address for packets to another launcher's coordinator; "" if not requested.
        own_name: addresses to which the host's name resolves; None if not requested.
        addresses: addresses by which other hosts may reach it; () if not requested.
        machine: id that is equal for two agents if and only if they share loopback.
        launcher: address from which the launcher connected by ssh; "" without ssh.
        tpu: TPU chips of the host; None if it has none or they were not requested.
        jax: version of jax; "" if unknown or not requested.
        source: SHA-256 of PROGRAM's source; "" if unknown or not requested.

    """

    python: str
    cwd: str
    port: int = 0
    transfer_ports: tuple[int, ...] = ()
    gpus: VisibleGpus = VisibleGpus()
    platforms: str = ""
    cores: tuple[tuple[int, ...], ...] = ()
    address: str = ""
    own_name: tuple[str, ...] | None = None
    addresses: tuple[str, ...] = ()
    machine: str = ""
    launcher: str = ""
    tpu: Tpu | None = None
    tpu_ports: tuple[int, ...] = ()
    stage: str = ""
    jax: str = ""
    source: str = ""

    answers = Prepare

    def check(self) -> None:
        """Reject an impossible port number, because other hosts may connect to the port."""
        if not 0 <= self.port <= _MOST_PORT:
            raise Malformed(f"port {self.port}")


class CoordinatorTried(ToLauncher):
    """Answer to TryCoordinator: this host's own address, or the error, by coordinator address."""

    sources: dict[str, str]
    errors: dict[str, str]

    answers = TryCoordinator


class Started(ToLauncher):
    """Notice that a rank's process has started."""

    rank: int
    pid: int


class Exited(ToLauncher):
    """Notice that a rank's process has ended.

    Args:
        status: exit status; below 0: minus the number of the signal that killed the process.
        sent: signals that the agent has sent to end the rank.
        killer: sentence on the out-of-memory killer or the limit that ended the process; "" if
            neither did, None if unknown.
        cpu_s, peak_kib: processor time in seconds, and peak memory in KiB.
        hooked: True if the hook was loaded in the process.

    """

    rank: int
    status: int
    sent: tuple[int, ...]
    killer: str | None
    cpu_s: float
    peak_kib: int
    hooked: bool = False

    def check(self) -> None:
        """Reject an impossible status, because its lowest byte could be 0 and mean success."""
        if not -_MOST_SIGNAL <= self.status <= MOST_STATUS:
            raise Malformed(f"status {self.status}")


class FromHook(ToLauncher):
    """Message from a hook inside a rank.

    Args:
        main: True if the rank's own process has sent it, not a child process.
        sent: signals sent to end the rank before it reported a failure; else ().
        beside: True in a Joining if another process of the rank is in the job already.
        repeated: True in a Joining if this process is in the job already.

    """

    rank: int
    message: HookMessage
    main: bool = True
    sent: tuple[int, ...] = ()
    beside: bool = False
    repeated: bool = False


class RankUsage(Nested):
    """Processor time and memory that a rank's processes use.

    Args:
        cpu_s: processor time of the processes, in seconds.
        rss_kib: resident memory of the processes, in KiB.

    """

    rank: int
    cpu_s: float
    rss_kib: int


class RankOnGpu(Nested):
    """A rank's use of a GPU: its memory in MiB, if the driver tells it."""

    rank: int
    mib: int | None = None


class GpuUse(Nested):
    """A GPU of a host, and its use; None for what its driver does not tell.

    Args:
        number: number of the GPU, in the order of the PCI bus.
        name: model of the GPU.
        used_mib, total_mib: memory in use by all processes, and memory of the GPU.
        busy: percentage of the time in which programs ran on it.
        ranks: the ranks that use it.
        others: descriptions of processes of no rank that use it.

    """

    number: int
    name: str
    used_mib: int
    total_mib: int
    busy: int | None = None
    ranks: tuple[RankOnGpu, ...] = ()
    others: tuple[str, ...] = ()


class Usage(ToLauncher):
    """Report of the processor time, memory and GPUs that the ranks of a host use."""

    ranks: tuple[RankUsage, ...]
    gpus: tuple[GpuUse, ...] = ()

    @property
    def about(self) -> Iterable[int]:
        """Ranks whose usage the message reports."""
        on_gpus = [used.rank for gpu in self.gpus for used in gpu.ranks]
        return [*(used.rank for used in self.ranks), *on_gpus]


class Stacks(ToLauncher):
    """Stacks of one process of a rank.

    Args:
        text: stacks as Python writes them; "" if the process has sent no stacks.
        state: description of the process from the kernel, if `text` is ""; else "".
        helper: True if another process of the rank is in the job, and this process is not.
        importing: True for the import server (--preload), which is not a rank yet.
        others: stacks of threads besides the main thread that run the user's code or JAX, if only
            the main thread's was requested and all could be read safely; else "".

    """

    rank: int
    pid: int
    text: str
    state: str = ""
    helper: bool = False
    importing: bool = False
    others: str = ""


class StacksComplete(ToLauncher):
    """Notice that all stacks for a RequestStacks have been sent."""


class Ending(ToLauncher):
    """Notice that the agent ends without an order, for a signal (by name) or a bad message."""

    reason: str


class InternalError(ToLauncher):
    """Notice that a bug in the agent ends it; its ranks end with it."""

    error: str
    traceback: str


class NotYetGone(ToLauncher):
    """Notice that some killed processes have not ended yet; `processes` describes each."""

    processes: tuple[str, ...]


class NothingLeft(ToLauncher):
    """Notice that no process of the job is left on this host; the rest of its output follows."""


class Leftover(Nested):
    """Process that a rank which ended well has left behind; `rank` is None if unknown."""

    rank: int | None
    pid: int
    command: str


class Bye(ToLauncher):
    """Last message of a run.

    Args:
        unkillable: descriptions of the processes that could not be killed.
        leftovers: processes that were ended because they had outlived the ranks of this host.
        not_removed: path in the job's private folder that could not be removed, and the reason; ""
            if everything was removed.
        kernel_log: lines of the kernel's log on memory and GPUs, since the ranks' start.

    """

    unkillable: tuple[str, ...]
    leftovers: tuple[Leftover, ...]
    not_removed: str = ""
    kernel_log: tuple[str, ...] = ()

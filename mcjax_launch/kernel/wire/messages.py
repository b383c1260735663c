"""Messages between the launcher and an agent: the protocol's specification.

The launcher and its agents have the same version, because the launcher sends the agent's code.
VERSION is checked nevertheless, in case the launcher's files are replaced while they are read.
Names of seconds end in `_s`; ranks are process ids of the job.
"""

from __future__ import annotations

from .codec import Malformed, Message, Nested
from .exit_status import MOST_STATUS
from .hook_messages import HookMessage, HookReply
from .rank_process import RankSettings

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import ClassVar

VERSION = 8

_MOST_SIGNAL = 64
_MOST_PORT = 65_535


class ToAgent(Message):
    """Message from the launcher to an agent."""


class Question(ToAgent):
    """Message that the agent answers, exactly once each time.

    RequestStacks is no Question, because an agent may answer two requests together. Refused is no
    answer to a Question, because it may arrive before the question.
    """


class ToLauncher(Message):
    """Message from an agent to the launcher.

    Attributes:
        answers: the question that this message answers, once each time; None if it answers none.

    """

    if TYPE_CHECKING:  # a class variable, not a field
        answers: ClassVar[type[Question] | None]
    answers = None

    @property
    def about(self) -> Iterable[int]:
        """Ranks that the message is about."""
        return (self.__dict__["rank"],) if "rank" in self._fields else ()


# --- launcher to agent ---


class StageEntry(ToAgent):
    """File, folder, link or copy for the staging folder; a file's content follows as raw frames.

    `target` is a link's target; `copy_of` is the path of an earlier entry with the same content.
    `written_ns` is the modification time of a file or copy. The content of a "private" file also
    follows; it goes beside the staging folder, and `target` says what it is.
    """

    path: str
    kind: str  # "file", "folder", "link", "copy" or "private"
    mode: int = 0o600
    target: str = ""
    copy_of: str = ""
    written_ns: int = 0


class Bind(Nested):
    """Address and port to reserve for the coordinator; "" and 0 for any."""

    host: str
    port: int


class Prepare(Question):
    """Request to look up and reserve things before ranks start: answered by HostFacts or Refused.

    Args:
        remote: the agent is not on the launcher's machine.
        command: PROGRAM, if it is not run with the ranks' Python.
        wrappers: the commands that ranks run under.
        program: PROGRAM, if it is a Python file.
        missing: advice if PROGRAM's file is missing; "" if the agent must look for a likely
            mistake.
        pythons: interpreters for the ranks, the first that exists is used; empty if none is needed.
        without_jax: message if that Python has no jax, for a program that seems to need it; "" to
            skip the check.
        env: the user's own variables.
        chdir, chdir_given: the working directory, and whether the user named it.
        coordinator: the address to reserve for the coordinator; on rank 0's host only.
        listen: listen on that host for test connections from the other hosts.
        describe: report how other hosts can reach this host.
        towards: the coordinator's address, if other launchers run the other hosts.
        transfer_ports, tpu_ports: how many ports to reserve.
        gpus: count the GPUs.
        bind_cores: as in Job; if ranks are to be bound to cores, report the cores.
        tpus: count the TPU chips, and report what the host knows of its slice.
        any_order: rank 0 may be placed on another host than the host with `coordinator`.
        ranks: how many ranks will run there.
        jax: report the version of jax of the ranks' Python, which may be `command`.

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


class TryCoordinator(Question):
    """Request to connect to each of these addresses: answered by CoordinatorTried.

    `after_s`: seconds to wait first, so that a thousand hosts do not connect at the same time.
    """

    addresses: tuple[str, ...]
    port: int
    after_s: float = 0.0


class Peer(Nested):
    """Host of the job, with the addresses and port where it listens for this attempt."""

    name: str
    addresses: tuple[str, ...]
    port: int


class TryPeers(Question):
    """Request to connect to each of these peers: answered by PeersTried."""

    peers: tuple[Peer, ...]


class RankOrder(Nested):
    """Rank to start, with its command and variables."""

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
        defaults: variables for all ranks that the host's own variables override.
        hook: put the hook in place, and remove misleading variables.
        coordinator_host: host that must not be reached through a proxy.
        private: rank 0 may listen in the private folder, because all ranks of the job are here.
        sample_every_s: seconds between reports of what ranks use; 0: no reports.
        grace_s, term_grace_s: seconds between asking ranks to end and killing them, after a
            failure, or if a signal ends the agent.
        on_failure: if a rank fails: "stop" ends the other ranks, with "continue" they go on, and
            with "restart" the launcher decides what happens to the failed rank.
        again: these ranks ran under an earlier agent: remove what it left before starting them.
        stays: wait for another run after the ranks have ended.

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
    again: bool = False
    stays: bool = False


class StartAgain(ToAgent):
    """Order to restart a failed rank, as soon as all its processes are gone."""

    rank: RankOrder


class Credit(ToAgent, ToLauncher):
    """Permission to send this many more bytes: of output, or of a feature's raw bytes (see Raw)."""

    count: int
    feature: str = ""  # type: ignore[misc]

    def check(self) -> None:
        """Reject a negative count."""
        if self.count < 0:
            raise Malformed(f"{self.count} bytes allowed")


class Forward(ToAgent):
    """Order to send every rank this signal; PROFILE goes only to ranks that handle it."""

    signum: int


#: Seconds after the first failure in which ranks that have not joined may fail in the same way.
ALIKE_S = 0.3


class Stop(ToAgent):
    """Order to end the ranks: send this signal now, and SIGKILL after the grace.

    `patience_s`: seconds that the kernel then gets to end them before they count as unkillable.
    `settles`: wait a moment before the signal, because other ranks may be about to fail in the same
    way.
    """

    signum: int
    grace_s: float
    patience_s: float = 5.0
    settles: bool = False


class RequestStacks(ToAgent):
    """Request for the Python stacks of all ranks: answered by Stacks and StacksComplete.

    `all_threads`: include running threads, which may crash a rank.
    """

    all_threads: bool


class RequestUsage(ToAgent):
    """Request for the processor time and memory that ranks use: answered by Usage."""


class ReplyToHooks(ToAgent):
    """Answer to the threads of these ranks that are held and wait for an answer."""

    ranks: tuple[int, ...]
    reply: HookReply


class ServeAgain(ToAgent):
    """Order to greet again and serve another run, after the Bye of an agent that stays."""


class Ping(ToAgent, ToLauncher):
    """Heartbeat, in both directions, over a network."""


# --- agent to launcher ---


class Greeting(ToLauncher):
    """First message: the agent runs, with this version; `portable`: without Linux's features."""

    version: int
    portable: bool = False


class Refused(ToLauncher):
    """Notice that the job cannot run on this host; `status` is the launcher's exit status."""

    reason: str
    status: int

    def check(self) -> None:
        """Reject status 0: a refusal is a failure."""
        if not 0 < self.status <= MOST_STATUS:
            raise Malformed(f"status {self.status}")


class VisibleGpus(Nested):
    """GPUs that a rank on a host would see by default.

    Args:
        ids: their numbers, as JAX counts them.
        mig: the uuids if these are MIG devices: CUDA gives a process one of them.
        counted: the file, variable or program that lists them; "" if nothing mentions GPUs.
        near: the CPU cores next to each, in the kernel's notation (`0-15,128-143`); empty if they
            are not known for all.

    """

    ids: tuple[int, ...] = ()
    mig: tuple[str, ...] = ()
    counted: str = ""
    near: tuple[str, ...] = ()

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
        chips: the number of chips.
        model: such as v5e.
        worker: the host's number in the slice; None if the host does not know it.
        workers: the number of hosts in the slice; 0 if the host does not know it.
        slice_number: the slice's number, among several slices.

    """

    chips: int
    model: str
    worker: int | None = None
    workers: int = 0
    slice_number: int = 0


class HostFacts(ToLauncher):
    """Facts about a host, and what it has reserved for the job: the answer to Prepare.

    Args:
        python, cwd: of its ranks.
        stage: its staging folder, if files were sent.
        port: the port reserved for the coordinator; 0 on other hosts.
        transfer_ports: reserved ports, one per rank.
        gpus: the GPUs that its ranks would see, if asked for.
        platforms: JAX_PLATFORMS there, as ranks inherit it.
        tpu_ports: ports that are reserved until the ranks start.
        cores: the physical cores that ranks may use, each as its hardware threads; empty if no rank
            is to be bound.
        address: its own address towards the coordinator of other launchers.
        own_name: the addresses that its own name resolves to; None if not asked for.
        addresses: addresses by which other hosts may reach it.
        machine: an id that is equal for two agents if and only if they share loopback.
        launcher: the address from which the launcher connected.
        tpu: its TPU chips, if it has any and they were asked for.
        jax: its version of jax; "" if unknown or not asked for.

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

    answers = Prepare

    def check(self) -> None:
        """Reject an impossible port: other hosts may be told to connect to it."""
        if not 0 <= self.port <= _MOST_PORT:
            raise Malformed(f"port {self.port}")


class CoordinatorTried(ToLauncher):
    """Results by coordinator address: this host's address in the connection, or the error."""

    sources: dict[str, str]
    errors: dict[str, str]

    answers = TryCoordinator


class PeersTried(ToLauncher):
    """Results by peer: the addresses that were reached, or the error of the first address."""

    reached: dict[str, tuple[str, ...]]
    errors: dict[str, str]

    answers = TryPeers


class Started(ToLauncher):
    """Notice that a rank's process runs."""

    rank: int
    pid: int


class Exited(ToLauncher):
    """Notice that a rank's process has ended.

    Args:
        status: its exit status; below 0: minus the number of the signal that killed it.
        sent: the signals that were sent to end it.
        killer: what the out-of-memory killer did to it, or which limit ended it; "" for neither,
            None if unknown.
        cpu_s, peak_kib: the processor time and the most memory that it used.
        hooked: the hook was loaded in its Python.

    """

    rank: int
    status: int
    sent: tuple[int, ...]
    killer: str | None
    cpu_s: float
    peak_kib: int
    hooked: bool = False

    def check(self) -> None:
        """Reject an impossible status: truncated to a byte, it could read as success."""
        if not -_MOST_SIGNAL <= self.status <= MOST_STATUS:
            raise Malformed(f"status {self.status}")


class FromHook(ToLauncher):
    """Message from a hook inside a rank.

    Args:
        main: it comes from the rank's own process, not from a child process.
        sent: the signals sent to end the rank before it reported a failure.
        beside: another process of the rank takes part in the job already (for Joining).
        repeated: this process takes part in the job already (for Joining).

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
        main_s: processor time of its main threads, plus a hundredth of the time for which they
            waited for a processor.
        main_waits: how often the main threads have had to wait for something.

    """

    rank: int
    cpu_s: float
    rss_kib: int
    main_s: float
    main_waits: int = 0


class Usage(ToLauncher):
    """Report of the processor time and memory that the ranks of a host use."""

    ranks: tuple[RankUsage, ...]

    @property
    def about(self) -> Iterable[int]:
        """Ranks that the message is about."""
        return [used.rank for used in self.ranks]


class Stacks(ToLauncher):
    """Stacks of one process of a rank.

    Args:
        text: faulthandler's output; empty if the process has no hook.
        state: what the kernel knows of the process, if `text` is empty.
        helper: this process does not take part in the job; another process of the rank does.
        blocked: the kernel function in which its main thread waits, "" if unknown.
        importing: this is the import server (--preload), which is not a rank yet.
        others: stacks of other threads in the user's code, if only the main thread's stack was
            requested and they could be read without a risk.

    """

    rank: int
    pid: int
    text: str
    state: str = ""
    helper: bool = False
    blocked: str = ""
    importing: bool = False
    others: str = ""


class StacksComplete(ToLauncher):
    """End of the stacks that were requested."""


class Ending(ToLauncher):
    """Notice that the agent ends for a reason that is not the launcher's order."""

    reason: str


class InternalError(ToLauncher):
    """Notice that a bug in the agent ends it; its ranks end with it."""

    error: str
    traceback: str


class NotYetGone(ToLauncher):
    """Notice that these processes were killed a while ago and have not ended yet."""

    processes: tuple[str, ...]


class NothingLeft(ToLauncher):
    """Notice that no process of the job is left on this host; the rest of its output follows."""


class Bye(ToLauncher):
    """Last message of a run.

    Args:
        unkillable: the processes that could not be killed.
        stragglers: how many stray processes were ended.
        not_removed: what is left of the job's private folder, and why; "" if nothing is.
        stays: the agent waits for ServeAgain, or for the end of its input.

    """

    unkillable: tuple[str, ...]
    stragglers: int
    not_removed: str = ""
    stays: bool = False

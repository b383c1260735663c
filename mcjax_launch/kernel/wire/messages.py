"""The messages between the launcher and an agent: the protocol's specification.

Both ends have one version, since the launcher brings the agent along; VERSION is checked all the
same, in case the launcher's files are replaced while they are read. Seconds are `_s`; ranks are
process ids of the job.
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
    """A message that the launcher sends."""


class Question(ToAgent):
    """One that is answered. Each answer is given once for each time that it was asked.

    Stacks are none: an agent answers two requests at once; nor is a refusal, which may come before
    the question.
    """


class ToLauncher(Message):
    """A message that an agent sends.

    Attributes:
        answers: what has to have been asked, once for each time that this is said; None: nothing.

    """

    if TYPE_CHECKING:  # no field
        answers: ClassVar[type[Question] | None]
    answers = None

    @property
    def about(self) -> Iterable[int]:
        """The ranks of which it says something."""
        return (self.__dict__["rank"],) if "rank" in self._fields else ()


# --- launcher to agent ---


class StageEntry(ToAgent):
    """A file, folder, link or copy for the staging folder; of a file the content follows, raw.

    `target` is a link's; `copy_of` is the path of an earlier entry with the same content. A file
    or copy is as old as `written_ns` says, by the clock of files. A "private" one, whose content
    follows too, goes beside the staging folder, and `target` says what it is.
    """

    path: str
    kind: str  # "file", "folder", "link", "copy" or "private"
    mode: int = 0o600
    target: str = ""
    copy_of: str = ""
    written_ns: int = 0


class Bind(Nested):
    """The address and port to reserve for the coordinator; "" and 0 for any."""

    host: str
    port: int


class Prepare(Question):
    """What to look up and reserve before anything is started: answered by HostFacts or Refused.

    Args:
        remote: the agent is not on the launcher's machine.
        command: PROGRAM, if it is not run with the ranks' Python.
        wrappers: the commands that ranks run under.
        program: a PROGRAM that is a Python file.
        missing: what helps where PROGRAM's file is not there; "" if only a look there can tell.
        pythons: interpreters for it, the first that exists is taken; none are needed where empty.
        without_jax: what to say of it if it has no jax, where the program seems to want that; empty
            if that need not be checked.
        env: the user's own variables.
        chdir, chdir_given: the working directory, and whether the user named it.
        coordinator: to be reserved; on rank 0's host only.
        listen: listen there, for the other hosts' attempts to connect.
        describe: say how other hosts may reach this one.
        towards: the coordinator, where other launchers have the other hosts.
        transfer_ports, tpu_ports: so many to reserve.
        gpus: count them.
        bind_cores: as in Job: say which cores there are, if ranks are to be bound to some.
        tpus: the same of TPU chips, and what the host knows of its slice.
        any_order: rank 0 may come to another host than the one with `coordinator`.
        ranks: that will run there.
        jax: say which version of jax their Python has, which may be `command`.

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
    """Connect to each of these: answered by CoordinatorTried.

    `after_s`: wait so long before, for a thousand hosts must not come at the same time.
    """

    addresses: tuple[str, ...]
    port: int
    after_s: float = 0.0


class Peer(Nested):
    """Another host of the job: where it listens for this attempt."""

    name: str
    addresses: tuple[str, ...]
    port: int


class TryPeers(Question):
    """Connect to each of these: answered by PeersTried."""

    peers: tuple[Peer, ...]


class RankOrder(Nested):
    """A rank to start."""

    process_id: int
    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: str
    settings: RankSettings
    wrapper_words: int = 0  # so many words of `argv` are the wrapper that it runs under


class Start(ToAgent):
    """Start the ranks.

    Args:
        env: variables of all of them.
        defaults: variables that the host's own win over.
        hook: put it in place, and take misleading variables out.
        coordinator_host: is not to be reached through a proxy.
        private: rank 0 may listen in the private folder: all ranks of the job are here.
        sample_every_s: so often report what ranks use; 0: never.
        grace_s, term_grace_s: between asking them to end and killing them, after a failure, or
            when somebody ends the agent.
        on_failure: what a rank's does to the others: "stop" ends them; with "continue" they go on,
            and with "restart" the launcher says what becomes of that rank.
        again: an earlier agent, that may still be here, has started them before: what is left of
            them goes first.
        stays: the agent is to wait for another run when the ranks have ended.

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
    """Start a rank again that has failed, as soon as nothing is left of it."""

    rank: RankOrder


class Credit(ToAgent, ToLauncher):
    """Allows so many more bytes: of output, or of those that a feature sends raw (see Raw)."""

    count: int
    feature: str = ""  # type: ignore[misc]

    def check(self) -> None:
        """Nobody gives bytes back."""
        if self.count < 0:
            raise Malformed(f"{self.count} bytes allowed")


class Forward(ToAgent):
    """Send every rank this signal, PROFILE to those alone that heed it; nothing else changes."""

    signum: int


#: How long ranks that have not joined yet may fail alike, until they are ended for the first one.
ALIKE_S = 0.3


class Stop(ToAgent):
    """End the ranks: this signal now, SIGKILL after the grace.

    `patience_s`: what the kernel then gets to end them, before they are taken for unkillable;
    `settles`: a rank has failed, and others may be about to fail alike: they get a moment.
    """

    signum: int
    grace_s: float
    patience_s: float = 5.0
    settles: bool = False


class RequestStacks(ToAgent):
    """Asks for the Python stacks of all ranks: answered by Stacks and StacksComplete.

    `all_threads`: of running threads too, which may crash a rank.
    """

    all_threads: bool


class RequestUsage(ToAgent):
    """Asks what the ranks use now: answered by Usage."""


class ReplyToHooks(ToAgent):
    """An answer to those threads of these ranks that wait for one."""

    ranks: tuple[int, ...]
    reply: HookReply


class ServeAgain(ToAgent):
    """After a Bye of an agent that stays: greet again, and serve another run."""


class Ping(ToAgent, ToLauncher):
    """A heartbeat, in both directions, over a network."""


# --- agent to launcher ---


class Greeting(ToLauncher):
    """The agent runs, and speaks this version; `portable`: it does without what Linux alone has."""

    version: int
    portable: bool = False


class Refused(ToLauncher):
    """The job cannot run on this host; `status` is the launcher's exit status for that."""

    reason: str
    status: int

    def check(self) -> None:
        """A refusal is a failure."""
        if not 0 < self.status <= MOST_STATUS:
            raise Malformed(f"status {self.status}")


class VisibleGpus(Nested):
    """The GPUs that a rank on a host would see, if nothing more were said.

    Args:
        ids: their numbers, as JAX counts them.
        mig: where they are MIG devices, their uuids: CUDA gives a process one of them.
        counted: where that stands; "" if nothing speaks of GPUs.
        near: the cores next to each, as the kernel lists them (`0-15,128-143`); empty where that is
            not known of all.

    """

    ids: tuple[int, ...] = ()
    mig: tuple[str, ...] = ()
    counted: str = ""
    near: tuple[str, ...] = ()

    def check(self) -> None:
        """What is known of each has to be so of all."""
        if len(self.near) not in (0, len(self.ids)):
            raise Malformed(f"{len(self.ids)} GPUs, {len(self.near)} of them near to cores")
        if len(self.mig) not in (0, len(self.ids)):
            raise Malformed(f"{len(self.ids)} GPUs, {len(self.mig)} of them MIG devices")

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.ids)


class Tpu(Nested):
    """The TPU chips of a host, and its place in its slice.

    Args:
        chips: how many.
        model: such as v5e.
        worker: its number in the slice; None where it does not know that.
        workers: how many the slice has; 0 where it does not know that.
        slice_number: of several slices.

    """

    chips: int
    model: str
    worker: int | None = None
    workers: int = 0
    slice_number: int = 0


class HostFacts(ToLauncher):
    """What a host has, and what it holds for the job: the answer to Prepare.

    Args:
        python, cwd: of its ranks.
        stage: its staging folder, where files were sent.
        port: the coordinator's, reserved; 0 elsewhere.
        transfer_ports: reserved, one a rank.
        gpus: that its ranks would see, where that was asked.
        platforms: JAX_PLATFORMS there, as ranks inherit it.
        tpu_ports: the same, until the ranks start.
        cores: the physical ones that ranks may use, each as its hardware threads; empty where no
            rank is to be bound to any.
        address: its own, towards the coordinator of other launchers.
        own_name: the addresses to which its own name leads; None where nobody asked.
        addresses: by which other hosts may reach it.
        machine: the same for two agents if and only if loopback is the same for both.
        launcher: the address by which the launcher came.
        tpu: its chips, if it has any and these were asked for.
        jax: its version; "" if that is not known, or was not asked for.

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
        """Other hosts may be told to connect to the port."""
        if not 0 <= self.port <= _MOST_PORT:
            raise Malformed(f"port {self.port}")


class CoordinatorTried(ToLauncher):
    """By address: the host's own address towards it, or what went wrong."""

    sources: dict[str, str]
    errors: dict[str, str]

    answers = TryCoordinator


class PeersTried(ToLauncher):
    """By name: the addresses at which a peer was reached, or what went wrong at the first."""

    reached: dict[str, tuple[str, ...]]
    errors: dict[str, str]

    answers = TryPeers


class Started(ToLauncher):
    """A rank's process runs."""

    rank: int
    pid: int


class Exited(ToLauncher):
    """A rank's process is gone.

    Args:
        status: its exit status; below 0: minus the number of the signal that killed it.
        sent: the signals that it was sent to end it.
        killer: what the out-of-memory killer did to it, or which limit has ended it; "" for
            nothing, None: not known.
        cpu_s, peak_kib: what it used.
        hooked: the hook was in its Python.

    """

    rank: int
    status: int
    sent: tuple[int, ...]
    killer: str | None
    cpu_s: float
    peak_kib: int
    hooked: bool = False

    def check(self) -> None:
        """What ends with another status could be taken for an end with 0."""
        if not -_MOST_SIGNAL <= self.status <= MOST_STATUS:
            raise Malformed(f"status {self.status}")


class FromHook(ToLauncher):
    """A message from a hook inside a rank.

    Args:
        main: in the rank's own process, not in one that it has started.
        sent: the signals that the rank had been sent to end it, where it says that it failed.
        beside: another process of the rank takes part in the job already (of Joining).
        repeated: this process does so itself (of Joining).

    """

    rank: int
    message: HookMessage
    main: bool = True
    sent: tuple[int, ...] = ()
    beside: bool = False
    repeated: bool = False


class RankUsage(Nested):
    """What the processes of a rank use: processor time in all, and memory.

    Args:
        main_s: the processor time of main threads; a hundredth of that for which they are starved.
        main_waits: how often these have had to wait for something.

    """

    rank: int
    cpu_s: float
    rss_kib: int
    main_s: float
    main_waits: int = 0


class Usage(ToLauncher):
    """What the ranks of a host use."""

    ranks: tuple[RankUsage, ...]

    @property
    def about(self) -> Iterable[int]:
        """The ranks of which it says something."""
        return [used.rank for used in self.ranks]


class Stacks(ToLauncher):
    """The stacks of one process of a rank.

    Args:
        text: faulthandler's; empty where there is no hook to ask.
        state: then, what the kernel knows of the process.
        helper: another process of the rank is the one that takes part in the job.
        blocked: where in the kernel its main thread waits, "" where that is not known.
        importing: it is no process of the rank's yet, but one that imports for ranks (--preload).
        others: where only the main thread's stack was asked for, those of other threads in code of
            the user's, as far as they could be had without a risk.

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
    """That was the last of the stacks."""


class Ending(ToLauncher):
    """Somebody other than the launcher ends the agent."""

    reason: str


class InternalError(ToLauncher):
    """The agent has met a bug of its own and ends; its ranks end with it."""

    error: str
    traceback: str


class NotYetGone(ToLauncher):
    """Some processes have been killed for a while, and have not ended yet."""

    processes: tuple[str, ...]


class NothingLeft(ToLauncher):
    """No process of the job is left on this host; the rest of its output follows."""


class Bye(ToLauncher):
    """The last message of a run.

    Args:
        unkillable: the processes that could not be killed.
        stragglers: how many stray processes were ended.
        not_removed: what of the job's private folder is left, and why; "" for nothing.
        stays: the agent waits for ServeAgain, or for the end of its input.

    """

    unkillable: tuple[str, ...]
    stragglers: int
    not_removed: str = ""
    stays: bool = False

"""What a feature does on a host: one object for each feature that has something to do there."""

from __future__ import annotations

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from typing import Any, Protocol

    from ..wire.codec import Message
    from ..wire.frames import Raw
    from ..wire.loop import Loop
    from ..wire.messages import FromHook, RankOrder, Start
    from ..wire.system import Limit
    from .hook_server import HookConnection, HookServer
    from .launcher_link import LauncherLink, Streams
    from .stacks import Asked
    from .startup import Prepared
    from .supervisor import Supervisor

    Wanted = tuple[RankOrder, dict[str, str]]  # a rank, and its whole environment

    class HostAgent(Protocol):
        """The agent as far as parts use it; see `agent.Agent`."""

        folder: str
        files_limit: Limit | None
        hooks: HookServer
        link: LauncherLink
        loop: Loop
        pids: dict[int, int]
        prepared: Prepared | None
        stays: bool
        streams: Streams
        supervisor: Supervisor

        def reap(self) -> None: ...
        def signal_rank(self, number: int, signum: int) -> None: ...
        def standard_streams(self, rank: RankOrder) -> tuple[int, int, int]: ...
        def start_ranks(self, ranks: Sequence[Wanted]) -> None: ...
        def started(self, number: int, pid: int) -> None: ...


class AgentPart:
    """By default it does nothing.

    The agent makes it when the launcher or a hook first sends something of the feature, and calls
    it at each of these points. `features.<name>.agent` has the class, as PART.

    Args:
        agent: whose part it is.

    """

    deadline: float | None = None
    #: What the feature's part in the ranks is asked for; "" for nothing.
    asks = ""
    #: When the ranks have ended, nothing of the part is open: the agent can serve another run.
    is_reusable = False

    def __init__(self, agent: HostAgent) -> None:
        self.agent = agent

    def received(self, message: Message | Raw) -> None:
        """The launcher has sent a message of the feature, or raw bytes."""
        raise TypeError(f"no message to an agent: {message!r}")

    def hook_said(self, hook: HookConnection, said: FromHook) -> None:
        """A process of a rank has sent a message of the feature."""

    def hook_gone(self, hook: HookConnection) -> None:
        """A process that had sent one is gone."""

    def starts(self, order: Start, environ: dict[str, str]) -> None:
        """The ranks are about to be started, with this environment and what is each one's own."""

    def standard_input(self, rank: int) -> int | None:
        """What a rank reads as its standard input, to be closed by the caller; None: not mine."""
        return None

    def starts_ranks(self, ranks: Sequence[Wanted]) -> bool:
        """Start these in the agent's place; whether it does."""
        return False

    def look(self) -> None:
        """Children may have ended: see to the feature's own before any other."""

    def owns(self, pid: int) -> bool:
        """Whether a child that has ended is the feature's own."""
        return False

    @property
    def kept_pids(self) -> Collection[int]:
        """The processes that outlive the ranks, where the agent stays."""
        return ()

    def keep(self) -> object | None:
        """What the part of another run takes over."""
        return None

    def take_over(self, thing: Any) -> None:
        """Take over what the part of an earlier run has kept."""

    @property
    def is_starting(self) -> bool:
        """Whether a child that nobody knows may turn out to be a rank."""
        return False

    @property
    def stand_ins(self) -> Mapping[int, int]:
        """The pids of processes that work for ranks that have not begun, and the rank of each."""
        return {}

    def request_stacks(self, all_threads: bool) -> Collection[Asked]:
        """Ask the feature's own processes for their stacks; see HookServer."""
        return ()

    def rank_ended(self) -> None:
        """A rank has been reaped."""

    def stops(self) -> None:
        """The launcher ends the job."""

    def ranks_end(self) -> None:
        """The ranks are being ended, for whatever reason."""

    def launcher_lost(self) -> None:
        """Nothing can be sent any more."""

    def drain(self) -> bool:
        """All ranks have ended: send what is left; whether that is all."""
        return True

    def expire(self, now: float) -> None:
        """The deadline has come."""

"""Parts of features on a host: one object for each feature that does something there."""

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
        """Agent, as far as parts use it; see `agent.Agent`."""

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
    """Part of a feature on a host; does nothing by default. `features.NAME.agent` has it as PART.

    The agent makes it when the launcher or a hook first sends a message of the feature, and calls
    these methods.

    Args:
        agent: the agent.

    """

    deadline: float | None = None
    #: Value of the feature's variable for its part in the ranks; "" to leave it unset.
    asks = ""
    #: Whether the agent can serve another run: the part keeps nothing open after the ranks' end.
    is_reusable = False

    def __init__(self, agent: HostAgent) -> None:
        self.agent = agent

    def received(self, message: Message | Raw) -> None:
        """Handle a message of the feature, or raw bytes, from the launcher."""
        raise TypeError(f"no message to an agent: {message!r}")

    def hook_said(self, hook: HookConnection, said: FromHook) -> None:
        """Handle a message of the feature from a process of a rank."""

    def hook_gone(self, hook: HookConnection) -> None:
        """Handle the end of a process that has sent a message of the feature."""

    def starts(self, order: Start, environ: dict[str, str]) -> None:
        """Prepare for the ranks' start, or change `environ`, the variables of all ranks."""

    def standard_input(self, rank: int) -> int | None:
        """Return a rank's standard input, for the caller to close; None to leave it as it is."""
        return None

    def starts_ranks(self, ranks: Sequence[Wanted]) -> bool:
        """Start these ranks, so that the agent need not; return whether this part does so."""
        return False

    def check_children(self) -> None:
        """Handle ended children of the feature's own, before the agent handles the rest."""

    def owns(self, pid: int) -> bool:
        """Return whether a child that has ended is the feature's own."""
        return False

    @property
    def kept_pids(self) -> Collection[int]:
        """Processes that outlive the ranks, if the agent stays."""
        return ()

    def keep(self) -> object | None:
        """Return an object for `take_over` in the next run; None for nothing."""
        return None

    def take_over(self, thing: Any) -> None:
        """Use what `keep` returned at the end of an earlier run."""

    @property
    def is_starting(self) -> bool:
        """True while an unknown child may turn out to be a rank."""
        return False

    @property
    def placeholder_pids(self) -> Mapping[int, int]:
        """Rank by pid, of processes that work for ranks which have not begun."""
        return {}

    def request_stacks(self, all_threads: bool) -> Collection[Asked]:
        """Ask the feature's own processes for their stacks; see HookServer.request_stacks."""
        return ()

    def rank_ended(self) -> None:
        """Act when a rank has been reaped."""

    def stops(self) -> None:
        """Act when the launcher ends the job."""

    def ranks_end(self) -> None:
        """Act when the ranks are about to be ended, whatever the reason."""

    def launcher_lost(self) -> None:
        """Act when the launcher is gone, and nothing can be sent any more."""

    def drain(self) -> bool:
        """Send the rest, because all ranks have ended; return whether all has been sent."""
        return True

    def expire(self, now: float) -> None:
        """Act, if the deadline has come."""

"""Parts of features on a host: one object for each feature that does something there."""

from __future__ import annotations

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from typing import Protocol

    from ..machine.loop import Loop, Timer
    from ..machine.system import Limit
    from ..wire.codec import Message
    from ..wire.frames import Raw
    from ..wire.messages import FromHook, RankOrder
    from .hook_server import HookConnection, HookServer
    from .launcher_link import LauncherLink, Streams
    from .leftovers import Leftovers
    from .stacks import StackSource
    from .startup import HostPreparation
    from .supervisor import Supervisor

    Wanted = tuple[RankOrder, dict[str, str]]  # a rank, and its whole environment

    class HostAgent(Protocol):
        """Interface of the agent for the features' parts; see `agent.Agent`."""

        folder: str
        hooks: HookServer
        leftovers: Leftovers
        link: LauncherLink
        loop: Loop
        pids: dict[int, int]
        prepared: HostPreparation | None
        starter: RankStarter
        streams: Streams
        supervisor: Supervisor
        timers: list[Timer]

        def complete_staging(self) -> str | None: ...
        def reap(self) -> None: ...
        def make_standard_streams(self, rank: RankOrder) -> tuple[int, int, int]: ...
        def start_ranks(self, ranks: Sequence[Wanted]) -> None: ...
        def record_rank_start(self, number: int, pid: int) -> None: ...


class AgentPart:
    """Base class of a feature's part on a host; `features.NAME.agent.PART` is the subclass.

    The agent creates it at the feature's first message from the launcher or a hook, and calls its
    methods. By default most do nothing; a feature overrides the methods that it needs.

    Args:
        agent: agent of this host.

    """

    #: Value of the feature's variable for its part in the ranks; "" to leave it unset.
    variable = ""

    def __init__(self, agent: HostAgent) -> None:
        self.agent = agent

    def on_message(self, message: Message | Raw) -> None:
        """Handle a message of the feature, or raw bytes, from the launcher."""
        raise TypeError(f"no message to an agent: {message!r}")

    def on_hook_message(self, hook: HookConnection, said: FromHook) -> None:
        """Handle a message of the feature that a hook has sent: by default pass it on."""
        self.agent.link.send(said)

    def on_hook_loss(self, hook: HookConnection) -> None:
        """Handle the end of a connection, whose process may have sent a message of the feature."""

    def on_leaving(self, rank: int) -> None:
        """Handle that a rank leaves the JAX job, which is about to be reported."""

    def on_rank_end(self, rank: int) -> None:
        """Handle the end of a rank's process, which is about to be reported."""

    def drop_replaced(self, env: dict[str, str]) -> dict[str, str]:
        """Return the user's variables for a rank, without those that a command here has changed."""
        return env

    def on_child_end(self, pid: int, status: int) -> None:
        """Handle the end of a child that is no rank's, and has been reaped."""

    def on_stop(self) -> None:
        """Drop work that has become useless, because the launcher has ordered the job's end."""

    def on_ranks_end(self) -> None:
        """Finish or cancel work that needs running ranks: they are about to be ended."""


class RankStarter:
    """Strategy for starting ranks. This default lets the agent spawn them.

    The part of a feature that starts ranks puts itself in its place, as `agent.starter`.

    Args:
        files_limit: limit on each rank's open files; None for this process's limit.

    """

    def __init__(self, files_limit: Limit | None) -> None:
        self.files_limit = files_limit

    def prepare(self, ranks: Sequence[Wanted]) -> None:
        """Prepare the start of these ranks, which is ordered later, if at all."""

    def start_ranks(self, ranks: Sequence[Wanted]) -> bool:
        """Start these ranks, or return False to have the agent spawn them."""
        return False

    def handle_ended_children(self) -> None:
        """Handle ended processes of the starter; called before the agent reaps children."""

    def owns(self, pid: int) -> bool:
        """Return whether an ended child is a process of the starter, which the starter reaps."""
        return False

    @property
    def is_starting(self) -> bool:
        """True while ranks are being started, so that an unknown child may be a rank."""
        return False

    @property
    def placeholder_pids(self) -> Mapping[int, int]:
        """Rank by pid, of the starter's processes that work for ranks that have not started yet."""
        return {}

    def list_stack_sources(self) -> Collection[StackSource]:
        """Return the starter's own processes that can be asked for stacks (see HookServer)."""
        return ()

"""Messages with which the launcher polls the positions of ranks' main threads."""

from __future__ import annotations

from ...wire.hook_messages import HookMessage
from ...wire.messages import ToAgent, ToLauncher

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from collections.abc import Iterable

NAME = "position_polls"


class PollPositions(ToAgent):
    """Request to poll each process that has joined: answered by RanksPolled."""


class RanksPolled(ToLauncher):
    """Notice of the ranks that were polled, and where in the kernel each main thread waited."""

    ranks: tuple[int, ...]
    blocked: tuple[str, ...]

    @property
    def about(self) -> Iterable[int]:
        """Ranks that the message is about."""
        return self.ranks


class ThreadPosition(HookMessage):
    """Position of a main thread, as a dump of its stack.

    It is sent as soon as the thread runs Python, so the thread has been there since the first poll.
    `beside`: another thread is in JAX.
    """

    calls: str
    beside: bool = False

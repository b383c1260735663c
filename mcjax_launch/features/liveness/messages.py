"""Messages with which the launcher asks whether ranks' main threads run Python."""

from __future__ import annotations

from ...wire.hook_messages import HookMessage
from ...wire.messages import ToAgent, ToLauncher

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from collections.abc import Iterable


class PollMainThreads(ToAgent):
    """Request to poll each process that has joined: answered by MainThreadsPolled."""


class MainThreadsPolled(ToLauncher):
    """Notice of the ranks that were polled."""

    ranks: tuple[int, ...]

    @property
    def about(self) -> Iterable[int]:
        """Ranks that the message is about."""
        return self.ranks


class MainThreadRuns(HookMessage):
    """Notice that a main thread runs Python, which has been polled."""

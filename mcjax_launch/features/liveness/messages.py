"""Messages with which the launcher asks whether ranks' main threads run Python."""

from __future__ import annotations

from ...wire.hook_messages import HookMessage
from ...wire.messages import ToAgent, ToLauncher


class PollMainThreads(ToAgent):
    """Request to poll each process that has joined: answered by MainThreadsPolled."""


class MainThreadsPolled(ToLauncher):
    """Notice of the ranks that were polled."""

    ranks: tuple[int, ...]


class MainThreadRuns(HookMessage):
    """Notice that a main thread runs Python, which has been polled."""

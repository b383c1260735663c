"""Orders to an agent to cause a fault in its ranks, or in itself."""

from __future__ import annotations

from ...kernel.wire.messages import ToAgent

NAME = "rehearse"


class SignalRank(ToAgent):
    """Order to send a rank this signal; its child processes get it too if it is SIGSTOP."""

    rank: int
    signum: int


class LoseHost(ToAgent):
    """Order to end at once, as if the host were lost with all that runs there."""

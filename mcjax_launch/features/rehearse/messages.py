"""What the launcher tells an agent to do to its own ranks, or to itself."""

from __future__ import annotations

from ...kernel.wire.messages import ToAgent

NAME = "rehearse"


class SignalRank(ToAgent):
    """Send a rank this signal, as anybody may; its helpers too if it is to stop."""

    rank: int
    signum: int


class LoseHost(ToAgent):
    """End as the host would: at once, and with all that runs there."""

"""Faults of --rehearse on this host: signals to a rank, or the end of the agent."""

from __future__ import annotations

import os
import signal

from ...kernel.agent.part import AgentPart
from .messages import LoseHost, SignalRank

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from ...kernel.wire.codec import Message
    from ...kernel.wire.frames import Raw


class FaultInjector(AgentPart):
    """Part that causes faults, about which the rest of the agent does not know."""

    def on_message(self, message: Message | Raw) -> None:
        """Cause a fault, because the launcher has ordered it."""
        if isinstance(message, LoseHost):
            os.kill(os.getpid(), signal.SIGKILL)  # the guardian ends the ranks
        elif isinstance(message, SignalRank):
            self.agent.signal_rank(message.rank, message.signum)


PART = FaultInjector

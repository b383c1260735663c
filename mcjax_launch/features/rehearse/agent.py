"""Does to a rank, or to its own process, what is rehearsed."""

from __future__ import annotations

import os
import signal

from ...kernel.agent.part import AgentPart
from .messages import LoseHost, SignalRank

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from ...kernel.wire.codec import Message
    from ...kernel.wire.frames import Raw


class Disturbing(AgentPart):
    """Nothing of it is known to the agent: what follows is as in earnest."""

    def received(self, message: Message | Raw) -> None:
        """The launcher says that it is time."""
        if isinstance(message, LoseHost):
            os.kill(os.getpid(), signal.SIGKILL)  # the guardian sees to what is left
        elif isinstance(message, SignalRank):
            self.agent.signal_rank(message.rank, message.signum)


PART = Disturbing

"""Passing of the user's request for a profile to this host's ranks."""

from __future__ import annotations

import signal

from ...agent.part import AgentPart
from ...agent.system import system

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from ...wire.codec import Message
    from ...wire.frames import Raw


class ProfileSignaller(AgentPart):
    """Part that signals ranks; without a handler the signal would end them."""

    def on_message(self, message: Message | Raw) -> None:
        """Begin a profile in all ranks, because the launcher has ordered it."""
        for hook in self.agent.hooks.in_job:
            if system.handles(hook.pid, signal.SIGPROF):
                system.signal_process(hook.pid, signal.SIGPROF)


PART = ProfileSignaller

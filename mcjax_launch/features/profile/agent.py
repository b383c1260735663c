"""Begins a profile in the ranks of a host."""

from __future__ import annotations

from ...kernel.agent.part import AgentPart

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from ...kernel.wire.codec import Message
    from ...kernel.wire.frames import Raw


class ProfilePart(AgentPart):
    """Signals those that expect it."""

    def received(self, message: Message | Raw) -> None:
        """A profile is wanted."""
        if self.agent.hooks is not None:
            self.agent.hooks.begin_profile()


PART = ProfilePart

"""Answers the questions of --check."""

from __future__ import annotations

import time

from ....kernel.agent.part import AgentPart
from ..messages import CountDevices, Survey, TellTime, Time

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from ....kernel.wire.codec import Message
    from ....kernel.wire.frames import Raw


class CheckPart(AgentPart):
    """Answers each as it comes."""

    def received(self, message: Message | Raw) -> None:
        """Answer a question."""
        agent = self.agent
        if isinstance(message, TellTime):
            agent.link.send(Time(time.time()))
            return
        from . import survey  # after the clock's

        if isinstance(message, CountDevices):
            agent.link.send(survey.count_devices(message))
        elif isinstance(message, Survey):
            agent.prepared, found = survey.survey(message, agent.loop)
            agent.link.send(found)


PART = CheckPart

"""Asks the processes of this host where their main threads are, and passes the answers on."""

from __future__ import annotations

from ...kernel.agent.part import AgentPart
from ...kernel.agent.stacks import with_source
from ...kernel.agent.system import system
from ...kernel.wire.system import place_signal
from .messages import AskPlaces, PlacesAsked, StandsAt

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from ...kernel.agent.hook_server import HookConnection
    from ...kernel.wire.codec import Message
    from ...kernel.wire.frames import Raw
    from ...kernel.wire.messages import FromHook


class Asking(AgentPart):
    """Asks by a signal on which Python acts when its main thread next runs Python."""

    def received(self, message: Message | Raw) -> None:
        """The launcher wants to know."""
        if not isinstance(message, AskPlaces):
            super().received(message)
        blocked: dict[int, str] = {}
        signum = place_signal()
        for hook in self.agent.hooks.in_job if self.agent.hooks is not None else ():
            where = system.blocked_in(hook.pid)
            if system.handles(hook.pid, signum) and system.signal_aside(hook.pid, signum):
                blocked[hook.rank] = where
        self.agent.link.send(PlacesAsked(tuple(blocked), tuple(blocked.values())))

    def hook_said(self, hook: HookConnection, said: FromHook) -> None:
        """A process has answered."""
        if isinstance(said.message, StandsAt):
            calls = "\n".join(with_source(said.message.calls.splitlines()))
            self.agent.link.send(said.replaced(message=said.message.replaced(calls=calls)))


PART = Asking

"""Asks the processes of this host where their main threads are, and passes the answers on."""

from __future__ import annotations

from ...kernel.agent.part import AgentPart
from ...kernel.agent.stacks import with_source
from ...kernel.agent.system import system
from ...kernel.wire.system import place_signal
from .messages import AskPlaces, PlacesAsked, StandsAt

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from ...kernel.agent.agent import Agent
    from ...kernel.agent.hook_server import HookConnection
    from ...kernel.wire.codec import Message
    from ...kernel.wire.frames import Raw
    from ...kernel.wire.messages import FromHook


class Asking(AgentPart):
    """Asks by a signal on which Python acts when its main thread next runs Python.

    One that waits as it did when it was asked is not signalled again: that only wakes it, and who
    looks for ranks that hang would not take it to stand still.
    """

    is_reusable = True

    def __init__(self, agent: Agent) -> None:
        super().__init__(agent)
        self._asked: dict[int, str] = {}  # by pid: where it waited, if it has not answered

    def received(self, message: Message | Raw) -> None:
        """The launcher wants to know."""
        assert isinstance(message, AskPlaces)
        blocked: dict[int, str] = {}
        signum = place_signal()
        for hook in self.agent.hooks.in_job:
            where = system.blocked_in(hook.pid)
            if where and self._asked.get(hook.pid) == where:
                blocked[hook.rank] = where
            elif system.handles(hook.pid, signum) and system.signal_aside(hook.pid, signum):
                blocked[hook.rank] = self._asked[hook.pid] = where
        self.agent.link.send(PlacesAsked(tuple(blocked), tuple(blocked.values())))

    def hook_said(self, hook: HookConnection, said: FromHook) -> None:
        """A process has answered."""
        if isinstance(said.message, StandsAt):
            self._asked.pop(hook.pid, None)
            calls = "\n".join(with_source(said.message.calls.splitlines()))
            self.agent.link.send(said.replaced(message=said.message.replaced(calls=calls)))

    def hook_gone(self, hook: HookConnection) -> None:
        """A process is gone."""
        self._asked.pop(hook.pid, None)


PART = Asking

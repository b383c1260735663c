"""Polling of this host's processes for their main threads' positions, for the launcher."""

from __future__ import annotations

from ...agent.part import AgentPart
from ...agent.stacks import with_source
from ...agent.system import system
from ...machine.system import get_position_signal
from .messages import PollPositions, RanksPolled, ThreadPosition

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from ...agent.hook_server import HookConnection
    from ...agent.part import HostAgent
    from ...wire.codec import Message
    from ...wire.frames import Raw
    from ...wire.messages import FromHook


class PositionPoller(AgentPart):
    """Part that polls processes by a signal, which Python handles when the main thread runs it.

    A process that still waits where it waited at the last poll gets no other signal. A signal would
    only wake it, and the watch for hangs would not see it stand still.
    """

    is_reusable = True

    def __init__(self, agent: HostAgent) -> None:
        super().__init__(agent)
        self._asked: dict[int, str] = {}  # by pid: where it waited when polled, until it answers

    def on_message(self, message: Message | Raw) -> None:
        """Poll all processes that have joined, because the launcher has asked."""
        assert isinstance(message, PollPositions)
        blocked: dict[int, str] = {}
        signum = get_position_signal()
        for hook in self.agent.hooks.in_job:
            where = system.find_blocking_call(hook.pid)
            if where and self._asked.get(hook.pid) == where:
                blocked[hook.rank] = where
            elif system.handles(hook.pid, signum) and system.signal_without_interrupting(
                hook.pid, signum
            ):
                blocked[hook.rank] = self._asked[hook.pid] = where
        self.agent.link.send(RanksPolled(tuple(blocked), tuple(blocked.values())))

    def on_hook_message(self, hook: HookConnection, said: FromHook) -> None:
        """Pass on a process's answer, with source lines."""
        if isinstance(said.message, ThreadPosition):
            self._asked.pop(hook.pid, None)
            calls = "\n".join(with_source(said.message.calls.splitlines()))
            self.agent.link.send(said.copy_with(message=said.message.copy_with(calls=calls)))

    def on_hook_loss(self, hook: HookConnection) -> None:
        """Forget a process that is gone."""
        self._asked.pop(hook.pid, None)


PART = PositionPoller

"""Polling of this host's processes by a signal, for the launcher."""

from __future__ import annotations

from ...agent.part import AgentPart
from ...agent.system import system
from ...machine.system import get_liveness_signal
from .messages import MainThreadsPolled, PollMainThreads

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from ...agent.hook_server import HookConnection
    from ...agent.part import HostAgent
    from ...wire.codec import Message
    from ...wire.frames import Raw
    from ...wire.messages import FromHook


class MainThreadPoller(AgentPart):
    """Part that polls processes by a signal, which Python handles when the main thread runs it.

    A process that still waits where it waited at the last poll gets no other signal. A signal would
    only wake it, and the watch for hangs would not see it stand still.
    """

    def __init__(self, agent: HostAgent) -> None:
        super().__init__(agent)
        self._asked: dict[int, str] = {}  # by pid: where it waited when polled, until it answers

    def on_message(self, message: Message | Raw) -> None:
        """Poll all processes that have joined, because the launcher has asked."""
        assert isinstance(message, PollMainThreads)
        polled = tuple(hook.rank for hook in self.agent.hooks.in_job if self._poll(hook.pid))
        self.agent.link.send(MainThreadsPolled(polled))

    def _poll(self, pid: int) -> bool:
        where, signum = system.find_blocking_call(pid), get_liveness_signal()
        if where and self._asked.get(pid) == where:
            return True
        if system.handles(pid, signum) and system.signal_without_interrupting(pid, signum):
            self._asked[pid] = where
            return True
        return False

    def on_hook_message(self, hook: HookConnection, said: FromHook) -> None:
        """Pass on a process's answer."""
        self._asked.pop(hook.pid, None)
        super().on_hook_message(hook, said)

    def on_hook_loss(self, hook: HookConnection) -> None:
        """Forget a process that is gone."""
        self._asked.pop(hook.pid, None)


PART = MainThreadPoller

"""Debuggers in this host's ranks: their requests are passed on, and the terminal's signals."""

from __future__ import annotations

import os

from ...agent.part import AgentPart
from ...agent.system import system
from .messages import (
    DebuggerMessage,
    DebuggerResumed,
    FromDebugger,
    ReplyToDebugger,
    SignalDebugger,
)

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from ...agent.hook_server import HookConnection
    from ...agent.part import HostAgent
    from ...wire.codec import Message
    from ...wire.frames import Raw
    from ...wire.messages import FromHook


class DebuggerLinks(AgentPart):
    """Part that connects debuggers with the launcher, which has the user's terminal."""

    def __init__(self, agent: HostAgent) -> None:
        super().__init__(agent)
        self._hooks: dict[int, HookConnection] = {}  # by pid

    def on_hook_message(self, hook: HookConnection, said: FromHook) -> None:
        """Pass on what a debugger says."""
        assert isinstance(said.message, DebuggerMessage)
        self._hooks[hook.pid] = hook
        self._report(hook, said.message)

    def on_hook_loss(self, hook: HookConnection) -> None:
        """Report that the process of a debugger is gone."""
        if self._hooks.get(hook.pid) is hook:
            del self._hooks[hook.pid]
            self._report(hook, DebuggerResumed())

    def _report(self, hook: HookConnection, message: DebuggerMessage) -> None:
        whole = self.agent.streams.drain(hook.rank)  # first what the rank has printed
        self.agent.link.send(FromDebugger(hook.rank, hook.pid, message, cut=not whole))

    def on_message(self, message: Message | Raw) -> None:
        """Pass on the launcher's answers, and signals of the terminal such as the user's Ctrl-C."""
        if isinstance(message, ReplyToDebugger) and message.pid in self._hooks:
            self._hooks[message.pid].send(message.reply)
        elif isinstance(message, SignalDebugger) and message.pid in self._hooks:
            group = system.get_process_group(message.pid)
            if group not in (0, os.getpgrp()):
                system.signal_group(group, message.signum)


PART = DebuggerLinks

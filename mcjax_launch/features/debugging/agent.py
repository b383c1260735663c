"""Pseudo-terminals for debuggers in this host's ranks, and their link to the user's terminal.

Each process that debugs has its own pseudo-terminal, so that everything works that a program can do
at a terminal (line editing, a full screen). In the whole job, one at a time is connected to the
user's terminal.
"""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import termios

from ...agent.part import AgentPart
from ...agent.system import system
from ...machine.loop import READ, Loop
from ...machine.uplink import Uplink
from ...wire import frames
from ...wire.messages import Credit
from .messages import (
    NAME,
    DebuggerMessage,
    DebuggerResumed,
    FromDebugger,
    ReplyToDebugger,
    TerminalGranted,
    TerminalSize,
)

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from ...agent.hook_server import HookConnection
    from ...agent.part import HostAgent
    from ...wire.codec import Message
    from ...wire.messages import FromHook
    from .messages import DebuggerReply

# Bytes of debuggers' output that may be on their way to the user.
_WINDOW = 1 << 16
_PIECE = 1 << 13


class _Terminal:
    """Pseudo-terminal of a process.

    Attributes:
        ours: the end that stands for keyboard and screen.
        theirs: the process's end.

    """

    def __init__(self, hook: HookConnection, loop: Loop) -> None:
        self.hook = hook
        self.ours, self.theirs = os.openpty()
        self._writing = os.dup(self.ours)  # a loop keeps one watch for each descriptor
        os.set_blocking(self.ours, False)
        self._loop = loop
        self._input = Uplink(self._writing, loop)
        self._settings = termios.tcgetattr(self.theirs)

    def reset(self) -> None:
        """Restore the initial settings, because a program may have changed them."""
        termios.tcsetattr(self.theirs, termios.TCSANOW, self._settings)

    def resize(self, rows: int, columns: int) -> None:
        size = struct.pack("HHHH", rows, columns, 0, 0)
        fcntl.ioctl(self.theirs, termios.TIOCSWINSZ, size)

    def write(self, data: bytes) -> None:
        """Pass on keys that the user has typed.

        The terminal controls no session, because a rank's child process cannot make it do so. So
        the signal of a key is sent from here, and the key itself is dropped: for it the kernel
        would also discard output that the process writes after the signal.
        """
        settings = termios.tcgetattr(self.theirs)
        interrupt = settings[6][termios.VINTR] if settings[3] & termios.ISIG else b""
        if isinstance(interrupt, bytes) and interrupt and interrupt in data:
            data = data.rpartition(interrupt)[2]
            termios.tcflush(self.theirs, termios.TCIFLUSH)
            self.signal(signal.SIGINT)
        self._input.send(data)

    def signal(self, signum: int) -> None:
        """Send a signal to the process's group, unless that is the agent's."""
        group = system.get_process_group(self.hook.pid)
        if group not in (0, os.getpgrp()):
            system.signal_group(group, signum)

    def read(self, most: int) -> bytes:
        """Return what the process has written; b"" if there is no more."""
        try:
            return os.read(self.ours, most)
        except OSError:
            return b""

    def close(self) -> None:
        self._input.drop()
        self._loop.forget(self.ours)
        for fd in (self.ours, self.theirs, self._writing):
            os.close(fd)


class Terminals(AgentPart):
    """Part that keeps the pseudo-terminals of this host's debuggers."""

    def __init__(self, agent: HostAgent) -> None:
        super().__init__(agent)
        self._loop = agent.loop
        self._link = agent.link
        self._terminals: dict[int, _Terminal] = {}  # by pid
        self._active: _Terminal | None = None  # receives what the user types
        self._size = (24, 80)
        self._credit = _WINDOW

    def on_hook_message(self, hook: HookConnection, said: FromHook) -> None:
        """Pass on what a debugger says."""
        message = said.message
        assert isinstance(message, DebuggerMessage)
        terminal = self._terminals.get(hook.pid)
        if terminal is None:
            terminal = self._terminals[hook.pid] = _Terminal(hook, self._loop)
        self._report(terminal, message)

    def on_hook_loss(self, hook: HookConnection) -> None:
        """Report that the process of a debugger is gone."""
        terminal = self._terminals.get(hook.pid)
        if terminal is not None:
            self._report(terminal, DebuggerResumed())
            del self._terminals[hook.pid]
            if self._active is terminal:
                self._active = None
            terminal.close()

    def _report(self, terminal: _Terminal, message: DebuggerMessage) -> None:
        hook = terminal.hook
        whole = self.agent.streams.drain(hook.rank)  # first what the rank has printed
        while self._read(terminal):  # and what its debugger has written
            pass
        self._link.send(FromDebugger(hook.rank, hook.pid, message, cut=not whole))

    def on_message(self, message: Message | frames.Raw) -> None:
        """Handle the launcher's keys, replies, sizes and credit."""
        if isinstance(message, frames.Raw):
            if self._active is not None:
                self._active.write(message.payload)
        elif isinstance(message, ReplyToDebugger):
            self._reply(message.pid, message.reply)
        elif isinstance(message, TerminalSize):
            self._resize(message.rows, message.columns)
        elif isinstance(message, Credit):
            self._credit += message.count
            if self._active is not None:
                self._watch(self._active)

    def _reply(self, pid: int, reply: DebuggerReply) -> None:
        """Send a debugger the reply for which it waits."""
        terminal = self._terminals.get(pid)
        if terminal is None:
            return
        self._watch(terminal)
        if isinstance(reply, TerminalGranted):
            self._active = terminal
            terminal.reset()
            terminal.resize(*self._size)
            terminal.hook.send(reply, [terminal.theirs])
        else:
            terminal.hook.send(reply)

    def _resize(self, rows: int, columns: int) -> None:
        """Record the size of the user's terminal; tell the active debugger if it has changed."""
        same, self._size = self._size == (rows, columns), (rows, columns)
        if self._active is not None and not same:
            self._active.resize(rows, columns)
            self._active.signal(signal.SIGWINCH)

    def _watch(self, terminal: _Terminal) -> None:
        self._loop.watch(terminal.ours, READ, lambda ready: self._read(terminal))

    def _read(self, terminal: _Terminal) -> bool:
        """Send some of a terminal's output; return whether there may be more."""
        if self._credit <= 0:  # the user's terminal is slow, so the process must wait
            self._loop.forget(terminal.ours)
            return False
        data = terminal.read(min(_PIECE, self._credit))
        self._credit -= len(data)
        if data:
            self._link.uplink.send(frames.encode_raw(NAME, terminal.hook.rank, data))
        return bool(data)


PART = Terminals

"""What debuggers in ranks, the agent of their host and the launcher say to one another."""

from __future__ import annotations

from ...kernel.wire.codec import Message
from ...kernel.wire.hook_messages import HookMessage
from ...kernel.wire.messages import ToAgent, ToLauncher

NAME = "debugging"


class DebuggerMessage(HookMessage):
    """A message from a debugger in the program, over a connection of its process's own."""


class DebuggerStopped(DebuggerMessage):
    """A debugger wants the user's terminal: answered by a DebuggerReply, on the same connection.

    `reason` is why it has stopped there, "" for a breakpoint.
    """

    where: str
    reason: str = ""


class DebuggerResumed(DebuggerMessage):
    """It gives the terminal back. `steps`: it will soon want it again, as far as it knows."""

    steps: bool = False


class DebuggerSwitches(DebuggerMessage):
    """It gives the terminal to that of another rank, and waits for it: answered as a stop is."""

    rank: int


class DebuggerQuits(DebuggerMessage):
    """The user has left the debugger, and the job with it."""

    where: str


class DebuggerReply(Message):
    """An answer to a debugger that wants the terminal."""


class TerminalGranted(DebuggerReply):
    """It has the terminal, until it gives it back: a descriptor comes along. `term` is its TERM."""

    term: str


#: Why a debugger is refused at the end of a job: if it waited, it would until it is killed.
JOB_ENDS = "no terminal for a debugger: the job is ending"


class TerminalRefused(DebuggerReply):
    """It cannot have it; or, after a DebuggerSwitches, that one cannot, and it keeps it."""

    reason: str


class FromDebugger(ToLauncher):
    """A message from a debugger in a process of a rank; a DebuggerResumed is its last.

    `cut`: the launcher's credit did not suffice for all that the rank has printed up to now, so the
    last line that it has sent may go on.
    """

    rank: int
    pid: int
    message: DebuggerMessage
    cut: bool = False


class ReplyToDebugger(ToAgent):
    """An answer to the debugger in this process; with it the user's input is for that one."""

    pid: int
    reply: DebuggerReply


class TerminalSize(ToAgent):
    """The size of the user's terminal."""

    rows: int
    columns: int

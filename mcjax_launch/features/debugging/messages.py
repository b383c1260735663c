"""Messages between debuggers in ranks, the agent of their host and the launcher."""

from __future__ import annotations

from ...wire.codec import Message
from ...wire.hook_messages import HookMessage
from ...wire.messages import ToAgent, ToLauncher

NAME = "debugging"


class DebuggerMessage(HookMessage):
    """Message from a debugger in the program, over an extra connection of its process."""


class DebuggerStopped(DebuggerMessage):
    """Request for the user's terminal: answered by a DebuggerReply, on the same connection.

    `reason` is why the debugger has stopped there, "" for a breakpoint.
    """

    where: str
    reason: str = ""


class DebuggerResumed(DebuggerMessage):
    """Notice that a debugger gives the terminal up. `steps`: it will probably need it soon."""

    steps: bool = False


class DebuggerQuits(DebuggerMessage):
    """Notice that the user has left the debugger, and so ends the job."""

    where: str


class DebuggerReply(Message):
    """Answer to a debugger that wants the terminal."""


class TerminalGranted(DebuggerReply):
    """Permission to open the user's terminal, which is at this path; `term` is its TERM."""

    path: str
    term: str


#: Reason for refusing a debugger at the end of a job: it would otherwise wait until it is killed.
JOB_ENDS = "no terminal for a debugger: the job is ending"


class TerminalRefused(DebuggerReply):
    """Refusal of the terminal.

    `passes`: the program goes on as if it had no breakpoint there, and `reason` was printed.
    """

    reason: str
    passes: bool = False


class FromDebugger(ToLauncher):
    """Message from a debugger in a process of a rank; a DebuggerResumed is its last.

    `cut`: the launcher's credit did not suffice for all that the rank has printed so far, so its
    last line may be incomplete.
    """

    rank: int
    pid: int
    message: DebuggerMessage
    cut: bool = False


class ReplyToDebugger(ToAgent):
    """Answer to the debugger in process `pid`."""

    pid: int
    reply: DebuggerReply


class SignalDebugger(ToAgent):
    """Order to pass a signal of the terminal to the process `pid`, whose debugger has it."""

    pid: int
    signum: int

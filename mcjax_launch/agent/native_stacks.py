"""Native stacks of this host's ranks, by py-spy or gdb if one of them is installed."""

from __future__ import annotations

import os
import signal
import time

from ..machine.loop import READ
from ..wire import messages
from ..wire.timers import scale_time
from .system import system

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..machine.loop import Loop

# Seconds for all ranks of a host: gdb needs 7 s of a core for a JAX process, py-spy less.
_MOST_S = scale_time(12.0)
_MOST_BYTES = 1 << 20
# gdb prints first what it loads.
_FIRST_THREAD = "\nThread "
_OUT_OF_TIME = "no native stacks in time"


class NativeDump:
    """End of a dump of stacks: native stacks if they are wanted, and StacksComplete.

    A tool runs for each rank, as many at once as there are cores.

    Args:
        loop: event loop that watches the tools' output.
        send: sends a message to the launcher.

    Attributes:
        is_wanted: True if the dump is to have native stacks.

    """

    def __init__(self, loop: Loop, send: Callable[[messages.ToLauncher], object]) -> None:
        self.is_wanted = False
        self.deadline: float | None = None
        self._loop = loop
        self._send = send
        self._command: list[str] = []
        self._waiting: list[tuple[int, int]] = []  # ranks and pids whose tool is not started yet
        self._tools: dict[int, _Tool] = {}  # by the descriptor of their output

    def complete(self, pids: Mapping[int, int]) -> None:
        """Start the tools if native stacks are wanted; send StacksComplete when all have ended.

        Args:
            pids: rank of each process, by pid.

        """
        if self.deadline is not None:
            return  # an earlier dump has not ended
        self._command = _find_tool() if self.is_wanted else []
        self._waiting = [(rank, pid) for pid, rank in pids.items()] if self._command else []
        self.is_wanted = False
        self.deadline = time.monotonic() + _MOST_S
        self._continue()

    def close(self) -> None:
        """Close the output of tools that have been ended with the ranks."""
        for fd in self._tools:
            os.close(fd)

    def expire(self, now: float) -> None:
        """Kill the tools that have not ended, if their time is up."""
        if self.deadline is not None and now >= self.deadline:
            self._waiting = []
            for fd, tool in list(self._tools.items()):
                system.signal_process(tool.tool_pid, signal.SIGKILL)
                self._finish(fd, _OUT_OF_TIME)
            self._continue()

    def _continue(self) -> None:
        while self._waiting and len(self._tools) < (os.cpu_count() or 1):
            self._start(*self._waiting.pop(0))
        if not self._tools and self.deadline is not None:
            self.deadline = None
            self._send(messages.StacksComplete())

    def _start(self, rank: int, pid: int) -> None:
        try:
            tool_pid, out = system.spawn_tool([*self._command, str(pid)])
        except OSError:  # it has been removed, or there is no room
            return
        self._tools[out] = _Tool(rank, pid, tool_pid)
        self._loop.watch(out, READ, lambda ready: self._read(out))

    def _read(self, fd: int) -> None:
        data = os.read(fd, 65536)
        self._tools[fd].output += data[: _MOST_BYTES - len(self._tools[fd].output)]
        if not data:
            self._finish(fd)
            self._continue()

    def _finish(self, fd: int, otherwise: str = "") -> None:
        """Send a tool's output: from its first thread on, else `otherwise`, else all of it."""
        self._loop.forget(fd)
        os.close(fd)
        tool = self._tools.pop(fd)
        text = tool.output.decode("utf-8", "replace")
        begin = text.find(_FIRST_THREAD)
        stacks = text[begin + 1 :] if begin >= 0 else otherwise or text
        self._send(messages.NativeStacks(tool.rank, tool.pid, stacks.strip()))


class _Tool:
    """Running tool: its pid, the process that it looks at, and its output so far."""

    def __init__(self, rank: int, pid: int, tool_pid: int) -> None:
        self.rank, self.pid, self.tool_pid = rank, pid, tool_pid
        self.output = bytearray()


def _find_tool() -> list[str]:
    """Return the command that prints the native stacks of the process named next; [] if none."""
    import shutil  # not at the agent's start

    if spy := shutil.which("py-spy"):
        return [spy, "dump", "--native", "--pid"]
    if gdb := shutil.which("gdb"):
        return [gdb, "-batch", "-nx", "-ex", "thread apply all backtrace", "-p"]
    return []

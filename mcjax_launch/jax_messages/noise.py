"""What JAX prints that is no news: Gloo's connections, and a victim's words about its end; pure.

Only whole lines that are JAX's own beyond doubt count, and tracebacks of what JAX raises where a
peer is lost. What follows such a line counts where the same message goes on.
"""

import enum
import re
from collections import deque
from collections.abc import Iterable, Sequence

from mcjax_launch.jax_messages.tracebacks import START, is_exception

# Gloo writes a line in pieces, so two threads of one rank mix theirs: "[Gloo] Rank [Gloo] Rank 0
# is connected to ..." and then "1 is connected to ...". Each is made of these pieces alone.
_GLOO_PIECES = (
    rb"\[Gloo\] Rank | is connected to | peer ranks\. |"
    rb"Expected number of connected peer ranks is : "
)
#: How they begin, as a rule.
GLOO_START = b"[Gloo] Rank "
_GLOO = re.compile(rb"\d*(?:%b)(?:\d|%b)*" % (_GLOO_PIECES, _GLOO_PIECES))
# What nearly each of them holds: long, since that is found faster, and a byte that is looked for
# much faster still.
_GLOO_MARK = b"Expected number of connected peer ranks is : "
_GLOO_BYTE = b"E"

# How a C++ file and line are named: today's way, and that of jax 0.6.
_HEAD = (
    rb"(?:[WEF]\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ |\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: [WEF] )"
    rb"[\w./+-]+\.(?:cc|h):\d+\] (?:\[\d+\] )?"
)
_TERM = re.compile(_HEAD + rb"SIGTERM caught at ")
_FATAL = b"Terminating process because the JAX distributed service detected fatal errors"
_VICTIM = re.compile(
    _HEAD + b"(?:" + _FATAL + rb"|Polled an error from coordination service"
    rb"|Use error polling to propagate the following error to all tasks"
    rb"|Shutdown barrier in coordination service has failed"
    rb"|Failed to retrieve preemption notice from coordination service"
    rb"|Failed to cancel preemption barrier|WatchTasksAsync failed)"
)
_GOES_ON = re.compile(
    rb"Additional GRPC error information from remote target coordination_service "
    rb"|:[A-Z_]+:(?:Error received from peer|Stream removed) "
    rb"|:\{\"created\":\"@.*\"Error received from peer "
    rb"|The tasks have crashed\. |RPC: /[\w.]+\.CoordinationService/| \[type\.googleapis\.com/"
    rb"|Barrier result: '|DEADLINE_EXCEEDED: Barrier timed out|# of tasks that reached the barrier:"
    rb"|The first task at the barrier: |This suggests that the workers are out of sync\."
    rb"|\. This is only expected if one of the tasks is unhealthy\. "
    rb"|=== Source Location Trace: ===|[\w./+-]+\.(?:cc|h):\d+ ?$"
    rb"|-{20}|For simplicity, JAX has removed its internal frames "
)
# After these the tasks follow, one a line.
_LIST = (b"(stopped sending heartbeats):", b"Some timed out task names:")
_TASK = re.compile(rb"\d+|/job:[\w/:]+")
_STACK = re.compile(rb"\*\*\* Check failure stack trace: \*\*\*|    @ +0x[0-9a-f]+ .*")
# What a victim says first holds one of these,
_VICTIM_MARKS = (_FATAL, b" from coordination service")
# and each of the lines above one of these, but for those that go on.
_MARKS = (b".cc:", b".h:", b"    @ ", b"*** Check failure")


class Noise(enum.Enum):
    """Kinds of lines that may be left out."""

    GLOO = enum.auto()  # a communicator has connected, with its own numbers of ranks
    TERM = enum.auto()  # the preemption service has caught a TERM
    VICTIM = enum.auto()  # JAX says that another rank is gone
    STACK = enum.auto()  # of the C++ that ends a process for that reason
    TRACEBACK = enum.auto()  # of an exception for that reason


def is_gloo(line: bytes) -> bool:
    """Whether this whole line is Gloo's."""
    return _GLOO.fullmatch(line) is not None


class GlooListener:
    """Finds Gloo's lines in one stream, with what its threads still owe of mixed lines."""

    def __init__(self) -> None:
        self._owed = 0  # ends of lines
        self._line = b""

    def unwanted(self, line: bytes) -> bool:
        """Whether the next line is Gloo's."""
        if is_gloo(line):
            self._owed = max(0, self._owed + line.count(b"[Gloo] Rank ") - 1)
            self._line = line
            return True
        if self._owed and (not line or (line.isdigit() and line in self._line)):
            self._owed -= 1
            return True
        self._owed = 0
        return False

    def may_be_in(self, data: bytes) -> bool:
        """Whether it is worth while to look at the lines of `data`."""
        return self._owed > 0 or (_GLOO_BYTE in data and _GLOO_MARK in data)


class Listener:
    """Tells the kinds of the lines of one stream, in their order."""

    def __init__(self) -> None:
        # Another's stack is its own affair: it may be the only trace of a second fault.
        self._victim = False
        self._goes_on = False
        self._in_list = False
        self._tracebacks: deque[bool | None] = deque()
        self._in_traceback = False  # in a victim's

    def expect(self, tracebacks: Iterable[bool | None]) -> None:
        """Know of the tracebacks that begin in the next lines whether they are victims'."""
        self._tracebacks = deque(tracebacks)

    def kind(self, line: bytes) -> Noise | None:
        """What kind of noise the next line is, if it is any."""
        kind = self._jax(line)  # also in the middle of a traceback's line
        return Noise.TRACEBACK if self._of_traceback(line) else kind

    def _of_traceback(self, line: bytes) -> bool:
        """Whether a line is one of a victim's traceback."""
        if line == START:
            self._in_traceback = bool(self._tracebacks and self._tracebacks.popleft())
            return self._in_traceback
        if not self._in_traceback or line.startswith(b" "):
            return self._in_traceback
        if not is_exception(line):
            return False
        self._in_traceback = False
        self._goes_on = True  # its message
        self._in_list = line.endswith(_LIST)
        return True

    def _jax(self, line: bytes) -> Noise | None:
        """What kind of JAX's lines a line is, if it is any."""
        head = _VICTIM.search(line)
        if head is not None:
            self._victim = self._victim or _FATAL in line
        goes_on = head is not None or (self._goes_on and self._more(line))
        in_list = self._in_list and _TASK.fullmatch(line) is not None
        self._in_list = goes_on and (in_list or line.endswith(_LIST))
        self._goes_on = goes_on
        if goes_on:  # in the middle of another thread's line, that is kept
            return Noise.VICTIM if head is None or head.start() == 0 else None
        if _TERM.match(line):
            return Noise.TERM
        if self._victim and _STACK.fullmatch(line):
            return Noise.STACK
        return Noise.GLOO if is_gloo(line) else None

    def _more(self, line: bytes) -> bool:
        if not line:
            return True
        if self._in_list and _TASK.fullmatch(line):
            return True
        return _GOES_ON.match(line) is not None

    def may_be_in(self, data: bytes) -> bool:
        """Whether it is worth while to look at the lines of `data`."""
        return self._goes_on or START in data or any(mark in data for mark in _MARKS)


def without_noise(lines: Sequence[str]) -> tuple[list[str], int]:
    """A stream's lines without any noise, and how many have been left out."""
    listener = Listener()
    kept = [line for line in lines if listener.kind(line.encode("utf-8", "replace")) is None]
    return kept, len(lines) - len(kept)


def may_hold_victim(data: bytes) -> bool:
    """Whether `data` may hold the first words of a victim."""
    return b"]" in data and any(mark in data for mark in _VICTIM_MARKS)

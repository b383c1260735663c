"""Recognition of noise in output: Gloo's connections, a victim's messages at its end; pure.

Noise is: whole lines that are surely JAX's, the lines that continue such a message, and tracebacks
of exceptions that JAX raises when a peer is lost.
"""

import enum
import re
from collections import deque
from collections.abc import Callable, Sequence

from mcjax_launch.jax_messages.colours import remove_colours
from mcjax_launch.jax_messages.tracebacks import (
    CHAINS,
    Traceback,
    begins,
    find_file,
    find_tracebacks,
    is_exception,
    may_begin_in,
)

# Patterns, compiled when the first line is to be matched, so that no start of a job waits for it.

# Gloo writes a line in pieces, so two threads of one rank mix theirs: "[Gloo] Rank [Gloo] Rank 0
# is connected to ..." and then "1 is connected to ...". Each is made of these pieces alone.
_GLOO_PIECES = (
    rb"\[Gloo\] Rank | is connected to | peer ranks\. |"
    rb"Expected number of connected peer ranks is : "
)
#: The usual beginning of Gloo's lines.
GLOO_START = b"[Gloo] Rank "
_GLOO = rb"\d*(?:%b)(?:\d|%b)*" % (_GLOO_PIECES, _GLOO_PIECES)
# Nearly all of Gloo's lines hold these: a long text, which is found fast, and a byte, which is
# found faster still.
_GLOO_MARK = b"Expected number of connected peer ranks is : "
_GLOO_BYTE = b"E"

# The head of a line from C++, with its file and line: of new releases, and of jax 0.6.
_HEAD = (
    rb"(?:[WEF]\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ |\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: [WEF] )"
    rb"[\w./+-]+\.(?:cc|h):\d+\] (?:\[\d+\] )?"
)
_TERM = _HEAD + rb"SIGTERM caught at "
# TensorFlow and libraries built with it print this on a machine without CUDA's driver, as the stubs
# in xla/tsl/cuda do, or if two of them contain the same library. An absl that is loaded twice
# announces further lines, which are shown.
_STUB = (
    rb"WARNING: All log messages before absl::InitializeLog\(\) is called are written to STDERR"
    rb"|(?:[IWE]\d{4} \d\d:\d\d:\d{2,12}\.\d+ +\d+ |\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: [IWE] )"
    rb"[\w./+-]+\.cc:\d+\] (?:Could not find cuda drivers on your machine, GPU will not be used\."
    rb"|Unable to register cu\w{2,8} factory: Attempting to register factory for plugin cu\w{2,8} "
    rb"when one has already been registered"
    # jax 0.8 prints this when it loads a program that was compiled for this very processor.
    rb"|Loading XLA:CPU AOT result\. Target machine feature "
    rb"\+prefer-no-(?:gather|scatter) is not .+)"
)
_STUB_MARKS = (
    b"absl::InitializeLog",
    b"find cuda drivers",
    b"factory for plugin cu",
    b"feature +prefer-no-",
)
_FATAL = b"Terminating process because the JAX distributed service detected fatal errors"
_VICTIM = (
    _HEAD + b"(?:" + _FATAL + rb"|Polled an error from coordination service"
    rb"|Use error polling to propagate the following error to all tasks"
    rb"|Shutdown barrier in coordination service has failed"
    rb"|Failed to retrieve preemption notice from coordination service"
    rb"|Failed to cancel preemption barrier|Preemption sync barrier failed|WatchTasksAsync failed)"
)
_GOES_ON = (
    rb"Additional GRPC error information from remote target coordination_service "
    rb"|:[A-Z_]{4,}:[^ ]"  # gRPC's status, and whatever it says of a peer and its address
    rb"|:\{\"created\":\"@.*\"Error received from peer "
    rb"|The tasks have crashed\. |RPC: /[\w.]+\.CoordinationService/| \[type\.googleapis\.com/"
    rb"|Barrier result: '|DEADLINE_EXCEEDED: Barrier timed out|# of tasks that reached the barrier:"
    rb"|The first task at the barrier: |This suggests that the workers are out of sync\."
    rb"|\. This is only expected if one of the tasks is unhealthy\. "
    rb"|=== Source Location Trace: ===|[\w./+-]+\.(?:cc|h):\d+ ?$"
    rb"|-{20}|For simplicity, JAX has removed its internal frames "
)
# After these lines the tasks follow, one to a line.
_LIST = (b"(stopped sending heartbeats):", b"Some timed out task names:")
_TASK = rb"\d+|/job:[\w/:]+"
_STACK = rb"\*\*\* Check failure stack trace: \*\*\*|    @ +0x[0-9a-f]+ .*"
# The first line of a victim's account holds one of these,
_VICTIM_MARKS = (_FATAL, b" from coordination service")
LONGEST_MARK = max(map(len, _VICTIM_MARKS))
# and every line above but those of _GOES_ON holds one of these.
_MARKS = (b".cc:", b".h:", b"    @ ", b"*** Check failure")
_ANY_MARKS = (*CHAINS, *_MARKS)


class Noise(enum.Enum):
    """A kind of line that may be hidden."""

    GLOO = enum.auto()  # a communicator has connected; its numbers are not the job's ranks
    TERM = enum.auto()  # the preemption service has caught SIGTERM
    VICTIM = enum.auto()  # another rank is gone
    STACK = enum.auto()  # the C++ stack of a process that ends because another rank is gone
    TRACEBACK = enum.auto()  # an exception because another rank is gone
    INTERRUPT = enum.auto()  # a Ctrl-C's traceback, like that of another rank
    INSIDE = enum.auto()  # in a Ctrl-C's traceback, all but the lines of the user's code
    SAME = enum.auto()  # a traceback like that of another rank
    STUB = enum.auto()  # there is no CUDA driver


def is_gloo(line: bytes) -> bool:
    """Return whether a whole line is Gloo's message about connected peers."""
    return re.fullmatch(_GLOO, line) is not None


def split_at_message(line: bytes) -> tuple[bytes, Noise | None]:
    """Divide a line in which a message of JAX's C++ follows the program's own text.

    Returns:
        the program's text, and the kind of message: VICTIM or TERM; the whole line and None if
            there is no message.

    """
    found = re.search(rb"(?P<victim>%b)|%b" % (_VICTIM, _TERM), line)
    if found is None:
        return line, None
    return line[: found.start()], Noise.VICTIM if found["victim"] else Noise.TERM


class GlooListener:
    """A recognizer of Gloo's lines in one stream, including lines mixed by two threads."""

    def __init__(self) -> None:
        self._owed = 0  # ends of mixed lines that are yet to come
        self._line = b""

    def recognize(self, line: bytes) -> bool:
        """Return whether the stream's next line is Gloo's, or the rest of a mixed line."""
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
        """Return quickly whether Gloo's lines may be in `data`."""
        return self._owed > 0 or (_GLOO_BYTE in data and _GLOO_MARK in data)


def is_stub(line: bytes) -> bool:
    """Return whether a whole line of stderr is a harmless message, as on machines without CUDA."""
    return re.fullmatch(_STUB, line) is not None


def may_have_stubs(data: bytes) -> bool:
    """Return quickly whether lines that `is_stub` recognizes may be in `data`."""
    return any(mark in data for mark in _STUB_MARKS)


class LineClassifier:
    """A classifier of the lines of one stream, given in order.

    Args:
        is_users: function that returns whether a file of a call is the user's own.

    Attributes:
        same: lines that another rank printed after an equal traceback, without colours.

    """

    def __init__(self, is_users: Callable[[str], bool] = lambda file: True) -> None:
        self._is_users = is_users
        self.same: frozenset[bytes] = frozenset()
        self._is_behind = False  # after a traceback that is the same in another rank
        # Only a victim's stack is noise: any other may be the only trace of a second failure.
        self._victim = False
        self._goes_on = False
        self._in_list = False
        self._expected: deque[tuple[Noise | None, int]] = deque()  # with the number of exceptions
        self._traceback: Noise | None = None  # the kind of the latest traceback
        self._more = 0  # exceptions chained to the present one
        self._in_users = False  # in lines of the user's code
        self._in_traceback = False  # in a traceback that is noise
        self._chained = False  # the next traceback is an effect of the latest
        self._gap = False  # empty lines are those between the two tracebacks

    def expect(self, text: bytes, kind: Callable[[Traceback], Noise | None]) -> None:
        """Announce the next lines; `kind` returns a traceback's kind of noise, None for none."""
        if may_begin_in(text):
            found = find_tracebacks(text, self._chained)
            self._expected = deque((kind(traceback), traceback.count) for traceback in found)

    def classify(self, line: bytes) -> Noise | None:
        """Return the next line's kind of noise, whatever its colours; None if it is not noise."""
        line = remove_colours(line)
        kind = self._classify_jax_line(line)  # also in the middle of a traceback's line
        of_traceback = self._classify_by_traceback(line)
        if of_traceback is None and self._is_behind:
            self._is_behind = line in self.same
            return Noise.SAME if self._is_behind else kind
        self._is_behind = of_traceback is Noise.SAME
        return of_traceback or kind

    def _classify_by_traceback(self, line: bytes) -> Noise | None:
        """Return the kind of noise of the traceback that a line belongs to; None for no noise."""
        gap, self._gap = self._gap, line in CHAINS
        if self._gap:
            self._chained = True
            return self._traceback
        if begins(line):
            self._begin_traceback()
            return self._traceback if self._traceback is not Noise.INSIDE or self._more else None
        if self._in_traceback:
            return self._classify_inside(line)
        self._gap = gap and not line
        return self._traceback if self._gap else None

    def _begin_traceback(self) -> None:
        """Begin a traceback, or that of the next exception of a chain."""
        if not self._chained:
            self._traceback, self._more = self._expected.popleft() if self._expected else (None, 1)
        self._more -= 1
        self._chained = self._in_users = False
        self._in_traceback = self._traceback is not None

    def _classify_inside(self, line: bytes) -> Noise | None:
        """Return the kind of noise of a line inside a noisy traceback; None to show it."""
        if self._traceback is Noise.INSIDE and not self._more:
            return self._classify_inside_last(line)
        if line.startswith(b" "):
            return self._traceback
        if not is_exception(line):  # another thread's
            return None
        self._in_traceback = False
        self._gap = True
        if self._traceback is Noise.TRACEBACK:
            self._goes_on = True  # its message
            self._in_list = line.endswith(_LIST)
        return self._traceback

    def _classify_inside_last(self, line: bytes) -> Noise | None:
        """Return INSIDE for a line of the interrupt itself that is not of the user's code."""
        if not line.startswith(b" "):
            self._in_traceback = not is_exception(line)
            return None
        file = find_file(line)
        if file is not None:
            self._in_users = self._is_users(file)
        return None if self._in_users else self._traceback

    def _classify_jax_line(self, line: bytes) -> Noise | None:
        """Return the kind of noise of a line of JAX's C++ code; None if the line is no noise."""
        head = re.search(_VICTIM, line)
        if head is not None:
            self._victim = self._victim or _FATAL in line
        task = self._in_list and re.fullmatch(_TASK, line) is not None
        more = self._goes_on and (not line or re.match(_GOES_ON, line) is not None)
        goes_on = head is not None or task or more
        self._in_list = task or (goes_on and line.endswith(_LIST))
        self._goes_on = goes_on
        if goes_on:  # in the middle of another thread's line, which is kept
            return Noise.VICTIM if head is None or head.start() == 0 else None
        if re.match(_TERM, line):
            return Noise.TERM
        if self._victim and re.fullmatch(_STACK, line):
            return Noise.STACK
        if is_stub(line):
            return Noise.STUB
        return Noise.GLOO if is_gloo(line) else None

    def may_be_in(self, data: bytes) -> bool:
        """Return quickly whether noise may be in `data`."""
        inside = self._goes_on or self._gap or self._in_traceback or self._is_behind
        return inside or may_begin_in(data) or any(mark in data for mark in _ANY_MARKS)


def without_noise(lines: Sequence[str]) -> tuple[list[str], int]:
    """Return a stream's lines without noise, and the number of lines removed."""
    listener = LineClassifier()
    kept = [line for line in lines if listener.classify(line.encode("utf-8", "replace")) is None]
    return kept, len(lines) - len(kept)


def has_victims_mark(text: bytes | bytearray) -> bool:
    """Return whether a victim's messages may begin in a text.

    Every mark has at most LONGEST_MARK bytes.
    """
    return any(mark in text for mark in _VICTIM_MARKS)

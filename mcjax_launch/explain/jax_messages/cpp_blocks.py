"""Parser of messages from JAX's C++ code, which are blocks of lines; pure.

A block is a line with a file, its line number and `]`, and the lines of the same message behind it:
of an RPC's error, with tasks, the trace of source locations, and the empty line at its end.
"""

import re

from mcjax_launch.explain.jax_messages.noise import Noise

# Patterns, compiled when the first line is to be matched, so that no start of a job waits for it.

# The head of a block, with its file and line: of new releases, and of jax 0.6.
_HEAD = (
    rb"(?:[IWEF]\d{4} \d\d:\d\d:\d{2,12}\.\d+ +\d+ "
    rb"|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: [IWEF] )[\w./+-]+\.(?:cc|h):\d+\] (?:\[\d+\] )?"
)
_FATAL = b"Terminating process because the JAX distributed service detected fatal errors"
_POLLING = b"Use error polling to propagate the following error to all tasks"
_VICTIM = (
    _FATAL + b"|" + _POLLING + rb"|Polled an error from coordination service"
    rb"|Shutdown barrier in coordination service has failed"
    rb"|Failed to retrieve preemption notice from coordination service"
    rb"|Failed to cancel preemption barrier|Preemption sync barrier failed"
)
_TERM = rb"SIGTERM caught at "
# On GPUs every rank prints this at its end, also at a good one.
_WATCH = b"WatchTasksAsync failed for task"
# TensorFlow and libraries built with it print this on a machine without CUDA's driver, as the stubs
# in xla/tsl/cuda do, or if two of them contain the same library. An absl that is loaded twice
# announces further lines, which are shown.
_STUB = (
    rb"Could not find cuda drivers on your machine, GPU will not be used\.$"
    rb"|Unable to register cu\w{2,8} factory: Attempting to register factory for plugin cu\w{2,8} "
    rb"when one has already been registered$"
    # jax 0.8 prints this when it loads a program that was compiled for this very processor.
    rb"|Loading XLA:CPU AOT result\. Target machine feature "
    rb"\+prefer-no-(?:gather|scatter) is not ."
    # jax 0.9 prints this when it loads any compiled program.
    rb"|Assume version compatibility\. PjRt-IFRT does not track XLA executable versions\.?$"
)
_PREAMBLE = (
    b"WARNING: All log messages before absl::InitializeLog() is called are written to STDERR"
)
_KNOWN = rb"%b(?:(?P<VICTIM>%b)|(?P<TERM>%b)|(?P<END>%b)|(?P<STUB>%b))" % (
    *(_HEAD, _VICTIM, _TERM, _WATCH, _STUB),
)
# Blocks of these kinds may have more lines. Those of a trace are the block's even if another thread
# has printed a few lines before them,
_HAVE_MORE = (Noise.VICTIM, Noise.END)
_MOST_BETWEEN = 2
_SURELY_MORE = (
    rb"Additional GRPC error information from remote target coordination_service "
    rb"|=== Source Location Trace: ===|external/xla[\w./+-]+\.(?:cc|h):\d+ ?$"
)
# and others are if they follow the block.
_MORE = (
    rb":[A-Z_]{4,}:[^ ]"  # gRPC's status, and whatever it says of a peer and its address
    rb"|:\{\"created\":\"@.*\"Error received from peer "
    rb"|The tasks have crashed\. |RPC: /[\w.]+\.CoordinationService/| \[type\.googleapis\.com/"
    rb"|Barrier result: '|DEADLINE_EXCEEDED: Barrier timed out|# of tasks that reached the barrier:"
    rb"|The first task at the barrier: |This suggests that the workers are out of sync\."
    rb"|\. This is only expected if one of the tasks is unhealthy\. |[\w./+-]+\.(?:cc|h):\d+ ?$"
    rb"|-{20}|For simplicity, JAX has removed its internal frames |$"
)
# Nobody but JAX begins a line like this.
_BEGINNING = rb"[IWEF]\d{4} \d\d:|Additional GRPC |:[A-Z_]{5}|=== Source |external/xla"
# After these lines the tasks follow, one to a line.
_LIST = (b"(stopped sending heartbeats):", b"Some timed out task names:")
_TASK = rb"\d+|/job:[\w/:]+"
_STACK = rb"\*\*\* Check failure stack trace: \*\*\*|    @ +0x[0-9a-f]+ .*"
# The head of a victim's block holds one of these,
_VICTIM_MARKS = (_FATAL, _POLLING, b" coordination service")
LONGEST_MARK = max(map(len, _VICTIM_MARKS))
# that of a block which is always hidden one of these,
_STUB_MARKS = (
    *(b"absl::InitializeLog", b"find cuda drivers", b"factory for plugin cu"),
    *(b"feature +prefer-no-", b"Assume version compat", _WATCH),
)
# and any head, and any line of a stack, one of these.
_MARKS = (b".cc:", b".h:", b"    @ ", b"*** Check failure")


class BlockReader:
    """A reader of one stream's lines, given in order and without colours, that finds blocks."""

    def __init__(self) -> None:
        self._kind: Noise | None = None  # of the block that the next lines may continue
        self._in_list = False
        self._is_behind_empty = False  # only one empty line in a row is a block's
        self._between = 0  # lines since the block's last line
        # Only a victim's stack is noise: any other may be the only trace of a second failure.
        self._aborts = False

    @property
    def is_open(self) -> bool:
        """True if the next line may continue a block."""
        return self._kind is not None

    def open(self, line: bytes) -> None:
        """Begin a victim's block behind a line of Python's: the exception that JAX has raised."""
        self._begin(Noise.VICTIM, line)

    def classify(self, line: bytes) -> Noise | None:
        """Return the next line's kind of noise; None if it is not noise, or not as a whole."""
        if (head := re.search(_KNOWN, line)) is not None:
            kind = Noise[str(head.lastgroup)]
            self._aborts = self._aborts or (kind is Noise.VICTIM and _FATAL in line)
            self._begin(kind, line)
            return kind if head.start() == 0 else None
        if self._kind is not None and self._is_more(line):
            return self._kind
        self._between += 1
        if self._between > _MOST_BETWEEN or re.search(_HEAD, line) is not None:
            self._kind = None
        if self._aborts and re.fullmatch(_STACK, line):
            return Noise.STACK
        return Noise.STUB if line == _PREAMBLE else None

    def _begin(self, kind: Noise, line: bytes) -> None:
        self._kind = kind if kind in _HAVE_MORE else None
        self._between, self._in_list, self._is_behind_empty = 0, line.endswith(_LIST), False

    def _is_more(self, line: bytes) -> bool:
        """Return whether a line continues the block."""
        is_next = self._between == 0
        if is_next and self._in_list and re.fullmatch(_TASK, line):
            return True
        is_more = is_next and not (self._is_behind_empty and not line) and re.match(_MORE, line)
        if not (is_more or re.match(_SURELY_MORE, line)):
            return False
        self._between, self._in_list = 0, line.endswith(_LIST)
        self._is_behind_empty = not line
        return True

    def may_have_stubs(self, data: bytes) -> bool:
        """Return quickly whether blocks that are always hidden may be in `data`."""
        return self.is_open or any(mark in data for mark in _STUB_MARKS)


def may_begin_with(begun: bytes) -> bool:
    """Return whether the line that begins so may be a block's."""
    return re.match(_BEGINNING, begun) is not None


def split_at_message(line: bytes) -> tuple[bytes, Noise | None]:
    """Divide a line in which a message of JAX's C++ follows the program's own text.

    Returns:
        the program's text, and the kind of message; the whole line and None if there is none.

    """
    found = re.search(_KNOWN, line)
    if found is None:
        return line, None
    return line[: found.start()], Noise[str(found.lastgroup)]


def may_be_in(data: bytes) -> bool:
    """Return quickly whether heads of blocks, or lines of a stack, may be in `data`."""
    return any(mark in data for mark in _MARKS)


def has_victims_mark(text: bytes | bytearray) -> bool:
    """Return whether a victim's messages may begin in a text.

    Every mark has at most LONGEST_MARK bytes.
    """
    return any(mark in text for mark in _VICTIM_MARKS)

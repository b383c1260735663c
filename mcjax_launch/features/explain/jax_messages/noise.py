"""Lines of JAX, Gloo and other libraries that say nothing to a user, known by how they begin; pure.

Patterns are compiled when the first line is to be matched, so that no start of a job waits for it.
"""

import re
from collections.abc import Sequence

from mcjax_launch.journal.tails import remove_colours

# Gloo writes a line in pieces, so two threads of one rank mix theirs.
_PIECES = (
    rb"\[Gloo\] Rank | is connected to | peer ranks\. |"
    rb"Expected number of connected peer ranks is : "
)
_GLOO = rb"\d*(?:%b)(?:\d|%b)*" % (_PIECES, _PIECES)
GLOO_MARK = b"Expected number of connected peer ranks is : "
#: The usual beginning of Gloo's lines, of which the rest may come later.
GLOO_START = b"[Gloo] Rank "

# A line of JAX's C++ begins with a level, a time, and a file: in new releases, and in jax 0.6.
_HEAD = (
    rb"(?:[IWEF]\d{4} \d\d:\d\d:\d{2,12}\.\d+ +\d+ "
    rb"|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: [IWEF] )[\w./+-]+\.(?:cc|h):\d+\] (?:\[\d+\] )?"
)
# On GPUs every rank prints this at its end, also at a good one, with lines behind it.
_WATCH = b"WatchTasksAsync failed for task"
# TensorFlow and libraries built with it print this on a machine without CUDA's driver, as the stubs
# in xla/tsl/cuda do, or if two of them contain the same library.
_NEVER = (
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
#: One of these is in each line that is never shown on stderr.
NEVER_MARKS = (
    *(b"absl::InitializeLog", b"find cuda drivers", b"factory for plugin cu"),
    *(b"feature +prefer-no-", b"Assume version compat", _WATCH),
)
_MORE = (
    rb"Additional GRPC error information |:[A-Z_]{4,}:[^ ]|=== Source Location Trace: ==="
    rb"|external/xla[\w./+-]+\.(?:cc|h):\d+ ?$|$"
)
# What tells of a lost rank: one of these is in the line,
LOSS_MARKS = (
    b"Terminating process because the JAX distributed service detected fatal errors",
    b"Use error polling to propagate the following error to all tasks",
    b" coordination service",
    b"preemption barrier",
    b"Preemption sync barrier failed",
)
# behind the head of a line of C++.
_LOSS = _HEAD + (
    rb"(?:%b|%b|Polled an error from coordination service"
    rb"|Shutdown barrier in coordination service has failed"
    rb"|Failed to retrieve preemption notice from coordination service"
    rb"|Failed to cancel preemption barrier|Preemption sync barrier failed)" % LOSS_MARKS[:2]
)
_TERM = _HEAD + rb"SIGTERM caught at "
TERM_MARK = b"SIGTERM caught at "
# Other lines of the messages of lost ranks, in a text that is quoted.
_REST = (
    rb"Additional GRPC error information |:[A-Z_]{4,}:[^ ]|:\{\"created\":|=== Source Location"
    rb"|external/xla|The tasks have crashed\. |RPC: /[\w.]+\.CoordinationService/"
    rb"|/job:jax_worker/|\*\*\* Check failure stack trace|    @ +0x[0-9a-f]+ "
)


def is_gloo(line: bytes) -> bool:
    """Return whether a whole line is Gloo's message about connected peers."""
    return re.fullmatch(_GLOO, line) is not None


def tells_of_loss(line: bytes) -> bool:
    """Return whether a line holds a message of JAX's C++ about a lost rank."""
    return any(mark in line for mark in LOSS_MARKS) and re.search(_LOSS, line) is not None


def is_term(line: bytes) -> bool:
    """Return whether a line says that JAX has caught SIGTERM."""
    return TERM_MARK in line and re.match(_TERM, line) is not None


class NeverShown:
    """Recognizer of the lines of one stream of stderr that are never shown, given in order."""

    def __init__(self) -> None:
        self.is_open = False  # the lines that follow a GPU's last message are yet to come

    def recognize(self, line: bytes) -> bool:
        """Return whether the next line is never shown."""
        line = remove_colours(line)
        if match := re.match(rb"%b(%b|%b)" % (_HEAD, _NEVER, _WATCH), line):
            self.is_open = match[1] == _WATCH
            return True
        if self.is_open and re.match(_MORE, line):
            self.is_open = bool(line)
            return True
        return line == _PREAMBLE


def without_noise(lines: Sequence[str]) -> tuple[list[str], int]:
    """Return a stream's lines without noise, and the number of lines removed."""
    never = NeverShown()
    kept: list[str] = []
    is_behind = False  # a line about a lost rank, of which more may follow
    for line in lines:
        data = remove_colours(line.encode("utf-8", "replace"))
        if never.recognize(data) or is_gloo(data) or is_term(data):
            continue
        if tells_of_loss(data):
            is_behind = True
        elif not is_behind or not (re.match(_REST, data) or not data or data.isdigit()):
            kept.append(line)
    return kept, len(lines) - len(kept)

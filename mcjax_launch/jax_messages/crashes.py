"""Lines on stderr with which a crashed process explains its end: C++, C, Rust and Python; pure."""

import re
import signal

from mcjax_launch.jax_messages.noise import has_victims_mark

# Only the last lines of stderr can explain the end: a C++ stack may follow the line.
_LAST_LINES = 300
_CRASHES = (
    *(signal.SIGABRT, signal.SIGILL, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE),
    *(signal.SIGTRAP, signal.SIGSYS),
)
# As a rank's own status, and as its shell reports it.
_STATUSES = {status for signum in _CRASHES for status in (-signum, 128 + signum)}
_PLACE = r"(?P<place>[\w./+-]+:\d+)\] "
_FATAL_LINES = (
    rf"F\d{{4}} [\d:.]+ +\d+ {_PLACE}(?P<text>.+)",  # absl, glog
    rf"\d{{4}}-\d\d-\d\d [\d:.]+: F {_PLACE}(?P<text>.+)",  # TensorFlow's logging
    r"(?P<text>\S.*:\d+: .+: Assertion .+ failed\.)",  # assert()
    r" *what\(\): *(?P<text>.+)",  # of a C++ exception, whose type is in the line before
    r"libc\+\+abi: (?P<text>terminating .+)",
    r"(?P<text>terminate called .+)",
    r"(?P<text>(?:double free or corruption|corrupted (?:size|double)|(?:free|munmap_chunk|realloc|"
    r"malloc(?:_consolidate)?)\(\): ).*)",  # glibc
    r"\*\*\* (?P<text>(?:stack smashing|buffer overflow) detected) \*\*\*.*",
    r"(?P<text>LLVM ERROR: .+)",
    r"(?P<text>thread '.*' (?:\(\d+\) )?panicked at .+)",  # Rust
    # What faulthandler calls a signal says no more than its name.
    r"(?P<text>Fatal Python error: (?!Aborted|Segmentation fault|Illegal instruction|Bus error|"
    r"Floating-point exception).+)",
)
_INSTANCE = r"terminate called after throwing an instance of '(.+)'"
#: The first line of the stacks that faulthandler prints at a fatal signal or error,
_FAULT = "Fatal Python error: "
# and at a time limit, after which it may exit with status 1.
_TIMEOUT = r"Timeout \((\d+:\d\d:\d\d(?:\.\d+)?)\)!"


def find_crash_words(stderr: str, status: int) -> str:
    """Return the line with which a process has explained its crash; "" if it has not.

    Args:
        stderr: the last output of the process.
        status: its exit status; below 0: minus the number of a signal.

    """
    lines = stderr.splitlines()[-_LAST_LINES:]
    if status == 1:
        limits = (match[1] for line in reversed(lines) if (match := re.fullmatch(_TIMEOUT, line)))
        limit = next(limits, "")
        return f"faulthandler's time limit of {limit} (dump_traceback_later)" if limit else ""
    if status not in _STATUSES:
        return ""
    for at in reversed(range(len(lines))):
        matches = (re.fullmatch(pattern, lines[at]) for pattern in _FATAL_LINES)
        match = next(filter(None, matches), None)
        if match is not None and not has_victims_mark(lines[at].encode("utf-8", "replace")):
            return _format_match(match, lines, at)
    return ""


def _format_match(match: re.Match[str], lines: list[str], at: int) -> str:
    found = match.groupdict()
    text: str = found["text"].strip()
    if place := found.get("place"):
        return f"{text} ({place})"
    if kind := re.fullmatch(_INSTANCE, lines[at - 1] if at else ""):
        return f"{kind[1]}: {text}"
    if "panicked at" in text and at + 1 < len(lines):
        return f"{text} {lines[at + 1].strip()}"
    return text


def find_stacks(stderr: str) -> tuple[str, bool]:
    """Return the last stacks that faulthandler has printed, and True if it was at a time limit."""
    lines = stderr.splitlines()
    for at in reversed(range(len(lines))):
        is_timeout = re.fullmatch(_TIMEOUT, lines[at]) is not None
        if is_timeout or lines[at].startswith(_FAULT):
            return "\n".join(lines[at:]), is_timeout
    return "", False

"""Lines on stderr with which a crashed process explains its end: C++, C, Rust and Python; pure."""

import re
import signal

from mcjax_launch.features.explain.jax_messages.noise import LOSS_MARKS

# Only the last lines of stderr can explain the end: a C++ stack may follow the line.
_LAST_LINES = 300
_CRASHES = (
    *(signal.SIGABRT, signal.SIGILL, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE),
    *(signal.SIGTRAP, signal.SIGSYS),
)
# As a rank's own status, and as its shell reports it.
_STATUSES = {status for signum in _CRASHES for status in (-signum, 128 + signum)}
# Of absl and glog, and of TensorFlow's logging.
_CHECK = (
    r"(?:F\d{4} [\d:.]+ +\d+|\d{4}-\d\d-\d\d [\d:.]+: F) (?P<place>[\w./+-]+:\d+)\] (?P<text>.+)"
)
# The text of a C++ exception, whose type is in the line before.
_WHAT = r" {0,8}what\(\): (.+)"
# Beginnings of lines of C++, glibc and LLVM.
_BEGINNINGS = (
    *("terminate called ", "libc++abi: terminating ", "LLVM ERROR: "),
    *("double free or corruption", "corrupted size", "corrupted double", "malloc_consolidate(): "),
    *("free(): ", "malloc(): ", "realloc(): ", "munmap_chunk(): "),
    *("*** stack smashing detected", "*** buffer overflow detected"),
)
# What faulthandler calls a signal says no more than its name.
_SIGNALS = (
    *("Aborted", "Segmentation fault", "Illegal instruction", "Bus error"),
    "Floating-point exception",
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
        limit = next(limits, "") if lines and lines[-1].startswith("  ") else ""  # it ends so
        return f"faulthandler's time limit of {limit} (dump_traceback_later)" if limit else ""
    if status not in _STATUSES:
        return ""
    found = (
        _read_line(lines, at)
        for at in reversed(range(len(lines)))
        if not any(mark in lines[at].encode("utf-8", "replace") for mark in LOSS_MARKS)
    )
    return next(filter(None, found), "")


def _read_line(lines: list[str], at: int) -> str:
    """Return what to quote of a line, with the type or text in the next line; "" if none."""
    line = lines[at]
    if check := re.fullmatch(_CHECK, line):
        return f"{check['text'].strip()} ({check['place']})"
    if what := re.fullmatch(_WHAT, line):
        instance = re.fullmatch(_INSTANCE, lines[at - 1]) if at else None
        return f"{instance[1]}: {what[1].strip()}" if instance else what[1].strip()
    if line.startswith("thread '") and "' panicked at " in line:  # Rust's
        return " ".join([line, *(more.strip() for more in lines[at + 1 : at + 2])])
    is_assertion = ": Assertion " in line and line.endswith("failed.")
    fault = line.removeprefix(_FAULT) if line.startswith(_FAULT) else ""
    is_fault = fault != "" and not fault.startswith(_SIGNALS)
    return line if is_assertion or is_fault or line.startswith(_BEGINNINGS) else ""


def find_stacks(stderr: str) -> tuple[str, bool]:
    """Return the last stacks that faulthandler has printed, and True if it was at a time limit."""
    lines = stderr.splitlines()
    for at in reversed(range(len(lines))):
        is_timeout = re.fullmatch(_TIMEOUT, lines[at]) is not None
        if is_timeout or lines[at].startswith(_FAULT):
            return "\n".join(lines[at:]), is_timeout
    return "", False

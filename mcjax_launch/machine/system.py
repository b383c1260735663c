"""System calls and files of Linux, with substitutes for other systems, and limits of `ulimit`.

The supervision of processes by an agent is in `agent/system/`.
"""

from __future__ import annotations

import errno
import os
import stat
import sys

TYPE_CHECKING = False

if TYPE_CHECKING:
    from io import FileIO
    from typing import Any


#: Variable that selects the substitutes on Linux too; for tests.
VARIABLE = "MCJAX_PORTABLE"
#: Whether Linux's own features are used.
LINUX = sys.platform.startswith("linux") and os.environ.get(VARIABLE, "0") in ("", "0")

#: Flags of `os.open` that create a file: never through a link, and never over an existing file.
NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW

# Some libraries use the first real-time signals.
_FIRST_OFFSET = 11
_F_SETPIPE_SZ = 1031
# A bigger pipe lets the writer go on while the reader is busy.
_PIPE_SIZE = 1 << 18
_MOST_TEXT = 1 << 16


def read_system_text(path: str) -> str:
    """Return a small file's text, stripped of white space; "" if it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(_MOST_TEXT).strip()
    except OSError:
        return ""


def list_names(folder: str) -> list[str]:
    """Return the names in a folder, in order; [] if it cannot be read."""
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def read_regular_file(path: str, most: int = -1) -> bytes:
    """Return the first `most` bytes of a program's file, all if -1.

    A pipe is not read: its content is the program's, and a named pipe may have no writer.

    Raises:
        OSError: the file cannot be read, or is not a regular file.

    """
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise OSError(errno.EINVAL, "is not a regular file")
    with open(path, "rb") as file:
        return file.read(most)


def write_all(file: FileIO, data: bytes | memoryview) -> None:
    """Write data to an unbuffered file, which may take it in parts.

    Raises:
        OSError: the file cannot be written, as on a full disk.

    """
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]


_CPU_FIELDS = (
    *("vendor_id", "cpu family", "model", "model name", "stepping", "flags"),
    *("CPU implementer", "CPU architecture", "CPU variant", "CPU part", "Features"),  # on ARM
)


def identify_processor() -> tuple[str, ...]:
    """Return an identity of the processor for caching native code, with the number of usable cores.

    On other systems than Linux it contains the host's name instead of the processor's properties.
    """
    first, _, _ = read_system_text("/proc/cpuinfo").partition("\n\n")
    lines = [line for line in first.splitlines() if line.partition(":")[0].strip() in _CPU_FIELDS]
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count()
    return (os.uname().machine, *(lines or [os.uname().nodename]), str(cores))


def make_selector() -> tuple[Any, float]:
    """Return an epoll or poll object, and the unit of its timeouts per millisecond (1e-3 or 1)."""
    import select

    if LINUX:  # with epoll, a turn's cost does not grow with the number of descriptors
        return select.epoll(), 1e-3
    return select.poll(), 1


def get_question_signal() -> int:
    """Return the signal that asks a main thread for its stack.

    On systems other than Linux it is ignored by default, in case the process has replaced its
    handlers.
    """
    import _signal  # without signal's own imports

    if LINUX:
        return int(_signal.SIGRTMIN + _FIRST_OFFSET)
    return int(getattr(_signal, "SIGINFO", _signal.SIGWINCH))


def widen(pipe: int, size: int = _PIPE_SIZE) -> None:
    """Enlarge a pipe's buffer to `size` bytes, if the system allows it."""
    if not LINUX:
        return
    import fcntl

    try:
        fcntl.fcntl(pipe, _F_SETPIPE_SZ, size)
    except OSError:
        pass


def find_input_position() -> int | None:
    """Return the position in the file that standard input is; None if it is no file."""
    try:
        return os.lseek(0, 0, os.SEEK_CUR)
    except OSError:
        return None


def is_in_foreground(fd: int) -> bool | None:
    """Return whether a terminal is this process's, not the shell's; None if it is of no session."""
    try:
        return os.tcgetpgrp(fd) == os.getpgrp()
    except OSError:  # no terminal, or that of another session
        return None


def reopen(fd: int, flags: int) -> int:
    """Open the pipe or terminal of a descriptor again, with these flags of `os.open`.

    Raises:
        OSError: it belongs to another user, or it is a pipe and this is not Linux.

    """
    return os.open(f"/proc/self/fd/{fd}" if LINUX else os.ttyname(fd), flags)


# --- `ulimit`: limits on open files, which is raised, and on processes ---

# Files that a launcher or an agent has open besides, generously.
_OURS = 24
# OPEN_MAX of macOS, which reports no hard limit.
_MACOS_MOST = 10_240
_SEE = {errno.EAGAIN: "see `ulimit -u`", errno.EMFILE: "raise `ulimit -n`"}

#: The soft and the hard limit.
Limit = tuple[int, int]


def allow_many_files() -> Limit | None:
    """Raise the limit on this process's open files as far as possible.

    Returns:
        the earlier limit, to restore it in child processes; None if it cannot be raised.

    """
    import resource

    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    for most in (before[1], max(before[0], _MACOS_MOST)):
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, before[1]))
        except (OSError, ValueError):  # macOS reports a limit that it does not accept
            continue
        return before
    return None


def limit_files(limit: Limit | None) -> Limit | None:
    """Set the limit on open files and return the old limit; do nothing if `limit` is None."""
    if limit is None:
        return None
    import resource

    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, limit)
    return before


def explain_file_limit(count: int) -> str:
    """Return a message if the limit does not allow `count` more open files; "" if it does."""
    import resource

    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY or count + _OURS <= limit:
        return ""
    return f"needs {count + _OURS} open files, and the limit is {limit}: raise `ulimit -n`"


def format_limit_error(error: OSError, otherwise: str = "") -> str:
    """Return the text of a system's error, with advice on the limit to raise.

    Args:
        error: error of a call that starts a process or opens a file.
        otherwise: advice if the error is not about a limit; "" for none.

    """
    hint = _SEE.get(error.errno or 0, otherwise)
    return f"{error.strerror}; {hint}" if hint else str(error.strerror)

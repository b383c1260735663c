"""What Linux alone has, in launcher, agents and hook, and what does instead; `ulimit`.

How an agent supervises is in `agent/system/`.
"""

from __future__ import annotations

import errno
import os
import sys

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


#: Chooses, on Linux too, what every Unix has; for tests.
VARIABLE = "MCJAX_PORTABLE"
#: Whether what Linux alone has is used.
LINUX = sys.platform.startswith("linux") and os.environ.get(VARIABLE, "0") in ("", "0")

#: How `os.open` makes a file: never through a link, and never over what is there.
NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW

# The first real-time signal is some libraries' own.
_FIRST_OFFSET = 11
_F_SETPIPE_SZ = 1031
# A bigger pipe lets the writer go on while the reader is elsewhere.
_PIPE_SIZE = 1 << 18
_MOST_TEXT = 1 << 16


def text_of(path: str) -> str:
    """What a small file of the system's holds, without white space around; "" if there is none."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(_MOST_TEXT).strip()
    except OSError:
        return ""


_CPU_FIELDS = (
    *("vendor_id", "cpu family", "model", "model name", "stepping", "flags"),
    *("CPU implementer", "CPU architecture", "CPU variant", "CPU part", "Features"),  # on ARM
)


def processor() -> tuple[str, ...]:
    """Return what native code for this processor depends on, and how many cores this process has.

    Elsewhere than on Linux the host's name stands for the processor.
    """
    first, _, _ = text_of("/proc/cpuinfo").partition("\n\n")
    lines = [line for line in first.splitlines() if line.partition(":")[0].strip() in _CPU_FIELDS]
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count()
    return (os.uname().machine, *(lines or [os.uname().nodename]), str(cores))


def selector() -> tuple[Any, float]:
    """What waits for descriptors, and the unit of its timeout in milliseconds."""
    import select

    if LINUX:  # what a turn costs must not grow with all that is watched
        return select.epoll(), 1e-3
    return select.poll(), 1


def dump_signals() -> tuple[int, int]:
    """The signals for a stack, and for those of all threads.

    Without real-time signals they are some that no process dies of, whatever it has become. macOS
    ignores them by default.
    """
    import _signal  # without signal's own imports

    if LINUX:
        first: int = _signal.SIGRTMIN + _FIRST_OFFSET
        return first, first + 1
    return _signal.SIGURG, getattr(_signal, "SIGINFO", _signal.SIGWINCH)


def place_signal() -> int:
    """The signal that asks where the main thread is; 0 where none can be sent aside."""
    import _signal

    return int(_signal.SIGRTMIN + _FIRST_OFFSET + 3) if LINUX else 0


def others_signal() -> int:
    """The signal that asks where the other threads are; 0 where no thread can be sent one."""
    import _signal

    return int(_signal.SIGRTMIN + _FIRST_OFFSET + 4) if LINUX else 0


def widen(pipe: int, size: int = _PIPE_SIZE) -> None:
    """Give a pipe a bigger buffer where the system allows it."""
    if not LINUX:
        return
    import fcntl

    try:
        fcntl.fcntl(pipe, _F_SETPIPE_SZ, size)
    except OSError:
        pass


def opened_again(fd: int, flags: int) -> int:
    """A descriptor for the same pipe or terminal, with flags of its own.

    Raises:
        OSError: it cannot be had: it is another user's, or this is no Linux and no terminal.

    """
    return os.open(f"/proc/self/fd/{fd}" if LINUX else os.ttyname(fd), flags)


class Arrivals:
    """Becomes ready when something arrives at a terminal, and not while it is there.

    Args:
        fd: the terminal.

    Raises:
        OSError: this system has no such thing.

    """

    def __init__(self, fd: int) -> None:
        import select

        self._waiting: Any
        self._forget: Callable[[], object]
        if LINUX:
            self._waiting = select.epoll()
            self._waiting.register(fd, select.EPOLLIN | select.EPOLLET)
            self._forget = lambda: self._waiting.poll(0)
        elif sys.platform != "linux" and hasattr(select, "kqueue"):
            how = select.KQ_EV_ADD | select.KQ_EV_CLEAR
            self._waiting = select.kqueue()
            self._waiting.control([select.kevent(fd, select.KQ_FILTER_READ, how)], 0)
            self._forget = lambda: self._waiting.control(None, 1, 0)
        else:
            raise OSError("neither epoll nor kqueue")

    def fileno(self) -> int:
        return int(self._waiting.fileno())

    def forget(self) -> None:
        """Be ready again only when more arrives."""
        self._forget()

    def close(self) -> None:
        self._waiting.close()


def wait_for_end(pid: int) -> bool:
    """Return when a child of this process has ended; it is left to be waited for.

    Returns:
        whether that is so; False, at once, on macOS before Python 3.13, which cannot wait so.

    """
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    except AttributeError:
        return False
    except ChildProcessError:  # that has been done
        pass
    return True


# --- `ulimit`: open files, of which we allow ourselves more, and processes ---

# What a launcher or an agent has open besides, generously.
_OURS = 24
# OPEN_MAX of macOS, whose hard limit says that there is none.
_MACOS_MOST = 10_240
_SEE = {errno.EAGAIN: "see `ulimit -u`", errno.EMFILE: "raise `ulimit -n`"}

#: The soft and the hard limit.
Limit = tuple[int, int]


def allow_many_files() -> Limit | None:
    """Raise the limit on this process's open files as far as it goes.

    Returns:
        the limit before, for children; None where nothing has changed.

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
    """Set the limit on open files, if there is one to set; returns that before."""
    if limit is None:
        return None
    import resource

    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, limit)
    return before


def too_many_files(count: int) -> str:
    """Why `count` more files cannot be open; empty if they can."""
    import resource

    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY or count + _OURS <= limit:
        return ""
    return f"needs {count + _OURS} open files, and the limit is {limit}: raise `ulimit -n`"


def limit_reason(error: OSError, otherwise: str = "") -> str:
    """Why there is no room for another process or file, and what limits it.

    Args:
        error: what the system said.
        otherwise: what to look at if it is no limit.

    """
    hint = _SEE.get(error.errno or 0, otherwise)
    return f"{error.strerror}; {hint}" if hint else str(error.strerror)

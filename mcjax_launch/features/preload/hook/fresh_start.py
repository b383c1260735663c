"""Fresh start of a forked rank, possible while the rank has had no visible effect.

Exec runs Python again in the same process, because Python cannot undo some changes.
"""

from __future__ import annotations

import os
import stat

from ....machine.interpreter import find_executable
from .effects import EffectWatch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_CHILDREN_FAULTS = 8  # of what /proc/PID/stat says after the process's name


def get_working_folder() -> str:
    """Return the working directory; "" if it has been removed."""
    try:
        return os.getcwd()
    except OSError:
        return ""


class FreshStart:
    """Initial state of a rank, with which the rank can start afresh.

    The rank cannot start afresh once it has had a visible effect, or may have had one: the audit
    events of Python show most, and counts of the system what is written to open descriptors,
    children, other descriptors, and the priority. Files that Python compiles from the program's
    modules do not count.

    Args:
        argv: command of the rank.
        environ: environment of the rank.

    """

    def __init__(self, argv: Sequence[str], environ: Mapping[str, str]) -> None:
        import _signal

        self._argv = argv
        self._environ = environ
        self._pid = os.getpid()
        self._folder = get_working_folder()
        self._umask = os.umask(0)
        os.umask(self._umask)
        self._cores = os.sched_getaffinity(0)
        self._ignored = _list_ignored_signals()
        self._blocked = _signal.pthread_sigmask(_signal.SIG_BLOCK, ())
        self._files = _list_open_files()
        self._priority = os.getpriority(os.PRIO_PROCESS, 0)
        self._written = _count_written()
        self._watch = EffectWatch()

    def send_uncounted(self, send: Callable[[], object]) -> None:
        """Call a function that writes to the agent, without counting that as a visible effect.

        The agent accepts the same message a second time.
        """
        before = _count_written()
        send()
        pairs = zip(self._written, before, _count_written())
        calls, length = (counted + now - then for counted, then, now in pairs)
        self._written = calls, length

    def rule_out(self) -> None:
        """Stop to watch the program, because it has nothing preloaded left to import."""
        self._watch.stop()

    def is_possible(self) -> bool:
        """Return whether the rank has had no visible effect, so that it can start afresh."""
        try:
            return not self._watch.has_effect and self._has_no_visible_effect()
        except (OSError, ValueError):  # this /proc lacks a file or a field
            return False

    def start_afresh(self) -> None:
        """Start the rank afresh: replace this process by its command with its first state."""
        import _signal

        path = self._environ.get("PATH", os.defpath)
        file = find_executable(self._argv[0], self._folder, path) or self._argv[0]
        os.chdir(self._folder)
        os.umask(self._umask)
        os.sched_setaffinity(0, self._cores)
        _signal.setitimer(_signal.ITIMER_REAL, 0)  # the fresh Python has no handler yet
        for signum in self._ignored ^ _list_ignored_signals():
            _signal.signal(signum, _signal.SIG_IGN if signum in self._ignored else _signal.SIG_DFL)
        _signal.pthread_sigmask(_signal.SIG_SETMASK, self._blocked)
        for fd in _list_open_files():
            os.set_inheritable(fd, fd <= 2)
        os.execve(file, list(self._argv), self._environ)

    def _has_no_visible_effect(self) -> bool:
        import _thread

        if os.getpid() != self._pid or _thread.get_native_id() != self._pid:
            return False
        if _has_had_children():
            return False
        files = _list_open_files()
        if any(files.get(fd) != file for fd, file in self._files.items()):
            return False
        if any(_can_be_seen(fd) for fd in files.keys() - self._files.keys()):
            return False
        if os.getpriority(os.PRIO_PROCESS, 0) != self._priority:
            return False
        os.stat(self._folder)  # raises where it is gone
        compiled = self._watch.compiled
        calls, length = (now - then for now, then in zip(_count_written(), self._written))
        return (calls, length) == (len(compiled), sum(compiled))


def _list_ignored_signals() -> set[int]:
    """Return the numbers of the signals that this process ignores."""
    import _signal

    return {n for n in _signal.valid_signals() if _signal.getsignal(n) == _signal.SIG_IGN}


def _count_written() -> tuple[int, int]:
    """Return the number of this process's write calls, and of bytes written."""
    with open("/proc/self/io") as file:
        counts = dict(line.split(": ") for line in file)
    return int(counts["syscw"]), int(counts["wchar"])


def _has_had_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        with open("/proc/self/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[_CHILDREN_FAULTS] != b"0"
    return True


def _list_open_files() -> dict[int, tuple[int, int]]:
    """Return the device and inode of each open descriptor."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            its = os.fstat(int(name))
        except OSError:  # the descriptor that was used to list the folder
            continue
        found[int(name)] = its.st_dev, its.st_ino
    return found


def _can_be_seen(fd: int) -> bool:
    """Return whether writes to a descriptor may be visible: False for files opened to read."""
    mode = os.fstat(fd).st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode) and not stat.S_ISCHR(mode):
        return True
    with open(f"/proc/self/fdinfo/{fd}") as file:
        flags = dict(line.split(":\t", 1) for line in file)["flags"]
    return int(flags, 8) & os.O_ACCMODE != os.O_RDONLY

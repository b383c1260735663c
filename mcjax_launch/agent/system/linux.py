"""Supervision on Linux: a subreaper adopts every orphan, and /proc shows every process."""

from __future__ import annotations

import _signal  # unlike signal it makes no enums, for which each rank would wait
import ctypes
import errno
import os
import struct

from ...machine.system import read_system_text
from ...wire.exit_status import RESET_IN_RANKS
from ...wire.rank_process import die_with_parent
from .out_of_memory import OutOfMemory
from .unix import (
    HostProcess,
    Unix,
    become_standard,
    explain_refusal,
    find_paths,
    start_each,
    try_each,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import NoReturn

    from ...machine.system import Limit
    from ...wire.rank_process import Prctl
    from .unix import Invocation, Spawned


_PF_EXITING = 4  # of include/linux/sched.h, in /proc/PID/stat
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_PAGE_KIB = os.sysconf("SC_PAGE_SIZE") // 1024
_STATES = {
    "R": "running",
    "S": "sleeping in the kernel",
    "D": "in uninterruptible sleep",
    "T": "stopped",
}

# Number of the system call, by machine.
_TGKILL = {"x86_64": 234, "aarch64": 131}.get(os.uname().machine, 0)
_library = ctypes.CDLL(None, use_errno=True)
_prctl, _syscall = _library.prctl, _library.syscall


class Linux(Unix):
    """Implementation of `Unix` with Linux's own features."""

    binds_cores = holds_ports = True

    def __init__(self) -> None:
        super().__init__()
        self.forks_ranks = os.path.exists("/proc/self/stat")  # not in each chroot or sandbox

    def set_process_name(self, name: str) -> None:
        """Set the name that `ps` shows for this process.

        A fork has its parent's name, so a user who kills the parent by name would kill both.
        """
        _prctl(_PR_SET_NAME, name.encode(), 0, 0, 0)
        try:
            # Where the command line is in memory.
            start, end = (int(field) for field in _read_stat_fields("self")[45:47])
        except (OSError, ValueError):  # no /proc, or a sandbox's: the name is only shown
            return
        if 0 < start < end:
            text = name.encode()[: end - start - 1].ljust(end - start, b"\0")
            ctypes.memmove(start, text, end - start)

    def adopt_orphans(self, folder: str) -> None:  # noqa: ARG002  the kernel finds them
        """Make this process the parent of every orphan below it, so that none can escape."""
        _prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def get_machine_id(self) -> str:
        boot = read_system_text("/proc/sys/kernel/random/boot_id")
        try:
            return f"{boot} {os.readlink('/proc/self/ns/net')}"
        except OSError:
            return os.uname().nodename

    def list_cores(self) -> list[list[int]]:
        """Return the numbers of the usable hardware threads of each physical core."""
        found: dict[str, list[int]] = {}
        for cpu in sorted(os.sched_getaffinity(0)):
            path = f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"
            found.setdefault(read_system_text(path) or str(cpu), []).append(cpu)
        return list(found.values())

    def read_limits(self, pid: int) -> tuple[Limit, Limit]:
        import resource

        try:
            cpu_time = resource.prlimit(pid, resource.RLIMIT_CPU)
            return cpu_time, resource.prlimit(pid, resource.RLIMIT_FSIZE)
        except OSError:  # another user's
            return super().read_limits(pid)

    def make_out_of_memory_watch(self) -> OutOfMemory:
        return OutOfMemory()

    def spawn_all(self, programs: Iterable[Invocation]) -> list[Spawned]:
        """Start programs that the kernel kills when this process ends.

        So they end even if the guardian is killed too.
        """
        try:
            forks = Forks(_prctl)
        except OSError as error:
            return [error]
        try:
            spawned = start_each(programs, forks.fork)
        finally:
            refused = forks.finish()
        return [refused.get(pid, pid) if isinstance(pid, int) else pid for pid in spawned]

    def _is_ending(self, pid: int) -> bool:
        try:
            fields = _read_stat_fields(pid)
            return fields[0] in (b"Z", b"X") or bool(int(fields[6]) & _PF_EXITING)
        except OSError:
            return False

    def handles(self, pid: int, signum: int) -> bool:
        """Return whether a process has its own handler for a signal."""
        caught = _read_fields(f"/proc/{pid}/status").get("SigCgt", "0")
        return bool(signum) and _holds(caught, signum)

    def signal_main_thread(self, pid: int, signum: int) -> bool:
        """Send a signal to the main thread; return False if it blocks the signal or is gone.

        A signal to the whole process may go to another thread if an earlier signal is still
        pending.
        """
        return _signal_one(pid, signum) if _TGKILL else super().signal_main_thread(pid, signum)

    def is_pending(self, pid: int, signum: int) -> bool:
        pending = _read_fields(f"/proc/{pid}/task/{pid}/status").get("SigPnd", "0")
        return _holds(pending, signum)

    def is_read(self, fd: int) -> bool:
        import fcntl
        import termios

        unread = fcntl.ioctl(fd, termios.TIOCOUTQ, bytes(4))
        return not any(unread)

    def list_descendants(self) -> list[int]:
        """Return the pids of all processes below this process, parents first, zombies included."""
        children: dict[int, list[int]] = {}
        for pid, fields in _iterate_stat_fields():
            children.setdefault(int(fields[1]), []).append(pid)
        found: list[int] = []
        ahead = [os.getpid()]
        while ahead:
            below = children.get(ahead.pop(), [])
            found += below
            ahead += below
        return found

    def list_processes(self) -> Iterator[HostProcess]:
        """Yield all processes of this host; `cpu_s` includes that of reaped children."""
        for pid, fields in _iterate_stat_fields():
            cpu_s = sum(map(int, fields[11:15])) * _TICK_S
            rss_kib = int(fields[21]) * _PAGE_KIB
            yield HostProcess(pid, int(fields[1]), int(fields[3]), cpu_s, rss_kib)

    def read_environ(self, pid: int) -> dict[str, str]:
        pairs = (entry.partition("=") for entry in _read_words(f"/proc/{pid}/environ"))
        return {name: value for name, _, value in pairs}

    def read_command(self, pid: int) -> list[str]:
        return _read_words(f"/proc/{pid}/cmdline")

    def describe(self, pid: int) -> str:
        try:
            state = _read_stat_fields(pid)[0].decode()
        except OSError:
            return "the process has ended" if self.forks_ranks else "unknown without /proc"
        name, place = read_system_text(f"/proc/{pid}/comm"), read_system_text(f"/proc/{pid}/wchan")
        text = f'"{name}" is {_STATES.get(state, f"in state {state}")}'
        return f"{text} ({place})" if place not in ("", "0") else text


def _iterate_stat_fields() -> Iterator[tuple[int, list[bytes]]]:
    try:
        names = os.listdir("/proc")
    except OSError:  # not in each chroot or sandbox
        return
    for name in names:
        if name.isdigit():
            try:
                yield int(name), _read_stat_fields(name)
            except OSError:  # it is gone meanwhile
                pass


def _read_stat_fields(pid: str | int) -> list[bytes]:
    """Return the fields of /proc/PID/stat that follow the process's name: state, parent, ...

    Raises:
        OSError: there is no such process.

    """
    with open(f"/proc/{pid}/stat", "rb") as stat:
        fields = stat.read().rpartition(b")")[2].split()
    if not fields:
        raise ProcessLookupError
    return fields


def _signal_one(pid: int, signum: int) -> bool:
    """Signal a main thread, unless it blocks the signal; return whether it was signaled."""
    blocked = _read_fields(f"/proc/{pid}/task/{pid}/status").get("SigBlk")
    if blocked is None or _holds(blocked, signum):  # it would stay pending
        return False
    return bool(_syscall(_TGKILL, pid, pid, signum) == 0)


def _holds(signals: str, signum: int) -> bool:
    """Return whether a set of signals, in /proc's notation, contains this signal."""
    return bool(int(signals, 16) >> (signum - 1) & 1)


def _read_fields(path: str) -> dict[str, str]:
    """Return the values in a file of lines such as `SigCgt: 180014a03`, by name."""
    pairs = (line.partition(":") for line in read_system_text(path).splitlines())
    return {name: value.strip() for name, _, value in pairs}


def _read_words(path: str) -> list[str]:
    """Return the NUL-terminated words of a file; [] if it cannot be read."""
    try:
        with open(path, "rb") as file:
            return [os.fsdecode(word) for word in file.read().split(b"\0")[:-1]]
    except OSError:
        return []


# --- forks of this process that become programs, which the kernel kills when this process ends ---

_FAILED = struct.Struct("=ii")  # the pid of a fork that cannot execute its program, and the errno


class Forks:
    """Forks of this process, each of which executes a program.

    Args:
        prctl: function `prctl` of the C library.

    Raises:
        OSError: there is no room for another pipe.

    """

    def __init__(self, prctl: Prctl) -> None:
        self._prctl = prctl
        self._agent = os.getpid()
        self._failed, self._failing = os.pipe()
        # A signal to a fork must not run handlers inherited from this process.
        self._mask = _signal.pthread_sigmask(_signal.SIG_BLOCK, _signal.valid_signals())
        handled = [n for n in _signal.valid_signals() if callable(_signal.getsignal(n))]
        self._reset = (*RESET_IN_RANKS, *handled)
        self._programs: dict[int, Invocation] = {}

    def fork(self, program: Invocation) -> int:
        """Fork a process that executes a program; return its pid.

        Raises:
            OSError: there is no such program, or no room for another process.

        """
        paths = find_paths(program)
        pid = os.fork()
        if pid == 0:
            self._become(paths, program)
        self._programs[pid] = program
        return pid

    def finish(self) -> dict[int, Spawned]:
        """Wait until each fork has executed its program; return why some cannot, by their pids."""
        _signal.pthread_sigmask(_signal.SIG_SETMASK, self._mask)
        os.close(self._failing)
        with open(self._failed, "rb") as pipe:
            codes = dict(_FAILED.iter_unpack(pipe.read()))  # exec closes the other end
        for pid in codes:
            os.waitpid(pid, 0)
        return {
            pid: explain_refusal(OSError(code, os.strerror(code)), self._programs[pid])
            for pid, code in codes.items()
        }

    def _become(self, paths: list[str], program: Invocation) -> NoReturn:
        """Turn a fork into its program, in its own session, with default signal actions."""
        try:
            become_standard(program.files)
            os.setsid()
            program.settings.apply()
            for signum in self._reset:
                _signal.signal(signum, _signal.SIG_DFL)
            die_with_parent(self._agent, self._prctl)
            _signal.pthread_sigmask(_signal.SIG_SETMASK, ())
            try_each(paths, lambda path: os.execve(path, list(program.argv), program.env))
        except BaseException as error:
            code = getattr(error, "errno", None) or errno.EINVAL
            os.write(self._failing, _FAILED.pack(os.getpid(), code))
        finally:
            os._exit(1)

"""What the agent asks of the operating system: spawn, signal, wait. No decisions.

The one module that knows how Linux differs from elsewhere. Without /proc, prctl and subreapers
(macOS) a rank's processes are reached through its process group only.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys

from ..protocol import ulimits
from ..protocol.signals import RESET_IN_RANKS

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    import resource
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from ..protocol.ulimits import Limit

LINUX = sys.platform.startswith("linux")
_PF_EXITING = 4  # of include/linux/sched.h, in /proc/PID/stat
# There are too many processes or files, or there is too little memory.
_NO_ROOM = (errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36

_prctl = ctypes.CDLL(None, use_errno=True).prctl if LINUX else None


def adopt_orphans() -> None:
    """Make every orphan below this process its child, so that none can slip away."""
    if _prctl is not None:
        _prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_parent(signum: int, parent: int) -> None:
    """Have the kernel send `signum` here when `parent` ends.

    Call it in the child's only thread: the setting belongs to the thread that forked.
    """
    if _prctl is not None:
        _prctl(_PR_SET_PDEATHSIG, int(signum), 0, 0, 0)
    if os.getppid() != parent:  # it ended before we asked
        os.kill(os.getpid(), signum)


def rename(name: str) -> None:
    """Have `ps` show this process as `name`: it was forked from one with a command line of its own.

    Who ends that one by its name means that one alone.
    """
    if _prctl is None:
        return
    _prctl(_PR_SET_NAME, name.encode(), 0, 0, 0)
    start, end = (int(field) for field in stat_fields("self")[45:47])  # of the command line
    if 0 < start < end:
        ctypes.memmove(
            start, name.encode()[: end - start - 1].ljust(end - start, b"\0"), end - start
        )


class SpawnError(Exception):
    """A program could not be started; `errno` and `what` say why."""

    def __init__(self, error: OSError, what: str) -> None:
        super().__init__(error.errno, what)
        self.errno = error.errno or 0
        self.what = what


def spawn(
    argv: Sequence[str],
    env: dict[str, str],
    cwd: str,
    standard: Sequence[int],
    cores: Sequence[int] | None = None,
    files_limit: Limit | None = None,
) -> int:
    """Start a process that runs `argv` in a session of its own, with the default signals; its pid.

    No Python runs between this process and the program: a fork would copy all that this process
    touches next. So this process enters the directory, and takes on what the new one inherits.

    Args:
        argv: the program, as a shell would find it, and its arguments.
        env: its whole environment.
        cwd: its working directory; this process's too from now on.
        standard: the descriptors that become its 0, 1 and 2.
        cores: what it may run on; None for all.
        files_limit: of its open files (see `ulimits.allow_many_files`); None for this process's.

    Raises:
        SpawnError: the program cannot be executed, or the directory cannot be entered.
        OSError: there is no room for another process.

    """
    try:
        os.chdir(cwd)
    except OSError as error:
        raise SpawnError(error, cwd) from None
    # Not by file actions: within the limit they take no descriptor that is beyond it.
    own = [os.dup(n) for n in range(3)]
    own_cores = _move_to(cores)
    _become_standard(standard)
    own_limit = ulimits.limit_files(files_limit)
    try:
        return _spawned(argv, env)
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise
        raise SpawnError(error, argv[0]) from None
    finally:
        ulimits.limit_files(own_limit)
        _become_standard(own)
        _move_to(own_cores)
        for fd in own:
            os.close(fd)


def _become_standard(fds: Sequence[int]) -> None:
    for target, fd in enumerate(fds):
        os.dup2(fd, target)


def _move_to(cores: Collection[int] | None) -> Collection[int] | None:
    """Run on these cores from now on; on which before, None if that has not changed."""
    if not cores or not hasattr(os, "sched_setaffinity"):
        return None
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    return before


def _spawned(argv: Sequence[str], env: dict[str, str]) -> int:
    """The pid of a new process, whose program is found as a shell would find it."""
    error: OSError = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    how = {"setsid": True, "setsigmask": (), "setsigdef": RESET_IN_RANKS}
    for path in _places(argv[0], env):
        try:
            return os.posix_spawn(path, list(argv), env, **how)  # type: ignore[arg-type]
        except (FileNotFoundError, NotADirectoryError):  # noqa: PERF203
            pass
        except PermissionError as found:  # another of that name may be behind it in PATH
            error = found
    raise error


def _places(name: str, env: Mapping[str, str]) -> list[str]:
    """Where a program may be."""
    if os.sep in name:
        return [name]
    folders = env.get("PATH", os.defpath).split(os.pathsep)
    paths = (os.path.join(folder, name) for folder in folders)
    return [path for path in paths if os.path.exists(path)]


def close_all_but(*kept: int) -> None:
    """Close all descriptors of this process but these. Linux only."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in kept:
            try:
                os.close(int(name))
            except OSError:  # that of the listing itself
                pass


class Ended:
    """A child that has ended and is still a zombie, so its pid and group are not reused.

    Attributes:
        status: its exit status; below 0: minus the number of the signal that killed it.

    """

    def __init__(self, pid: int, status: int) -> None:
        self.pid = pid
        self.status = status


class Childless(Exception):
    """There is no child left: the proof that nothing of the job is left on this host."""


def ended_child(spared: int = 0) -> Ended | None:
    """A child that has ended, not reaped yet; None if all still run.

    Args:
        spared: a child that does not count: it has no children, and gets none. 0: there is none.

    Raises:
        Childless: there are no children, but for that one.

    """
    try:
        if not hasattr(os, "waitid"):  # macOS before Python 3.13
            return _reaped_child()
        found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        raise Childless from None
    if found is None and spared and _children() == b"%d " % spared:
        raise Childless
    return None if found is None else Ended(found.si_pid, _status(found))


def knows_its_children() -> bool:
    """Whether the system lists them, as Linux can."""
    try:
        return _children() is not None
    except OSError:
        return False


def _children() -> bytes:
    """The pids of this process's children, zombies too, each with a space after it.

    What has one alone proves that it is the only child, if that is the oldest one: the kernel
    appends to the list, and finds the end of it by looking whether this child is the last.
    """
    pid = os.getpid()
    with open(f"/proc/{pid}/task/{pid}/children", "rb") as children:
        return children.read()


def status_of(pid: int) -> int | None:
    """The status of one child that has ended, not reaped yet; None if it still runs. Linux only."""
    found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    return None if found is None else _status(found)


def _status(found: os.waitid_result) -> int:
    return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status


_usage_of_reaped: dict[int, resource.struct_rusage] = {}


def _reaped_child() -> Ended | None:
    """A child that has ended, where that cannot be seen without being reaped."""
    pid, status, used = os.wait4(-1, os.WNOHANG)
    if pid == 0:
        return None
    _usage_of_reaped[pid] = used
    return Ended(pid, os.waitstatus_to_exitcode(status))


def reap(pid: int) -> tuple[float, int]:
    """Let go of an ended child; what it used: seconds of processor time, and KiB at its peak."""
    used = _usage_of_reaped.pop(pid, None) or os.wait4(pid, 0)[2]
    unit = 1 if LINUX else 1024  # macOS counts bytes
    return used.ru_utime + used.ru_stime, used.ru_maxrss // unit


def signal_group(pgid: int, signum: int) -> None:
    """Signal a process group whose leader has not been reaped."""
    try:
        os.killpg(pgid, signum)
    except (ProcessLookupError, PermissionError):  # macOS: EPERM for a zombie-only group
        pass


def signal_process(pid: int, signum: int) -> None:
    """Signal one process, if it is still there and this user may signal it."""
    try:
        os.kill(pid, signum)
    except (ProcessLookupError, PermissionError):
        pass


def descendants() -> list[int]:
    """All processes below this one, parents first, zombies too; empty without /proc."""
    children: dict[int, list[int]] = {}
    for pid, fields in processes():
        children.setdefault(int(fields[1]), []).append(pid)
    found: list[int] = []
    ahead = [os.getpid()]
    while ahead:
        below = children.get(ahead.pop(), [])
        found += below
        ahead += below
    return found


def processes() -> Iterator[tuple[int, list[bytes]]]:
    """All processes of this host, with their stat_fields; none without /proc."""
    for name in os.listdir("/proc") if LINUX else ():
        if name.isdigit():
            try:
                yield int(name), stat_fields(name)
            except OSError:  # it has gone meanwhile
                pass


def stat_fields(pid: str | int) -> list[bytes]:
    """What /proc/PID/stat says after the process's name: its state, its parent, ...

    Raises:
        OSError: there is no such process.

    """
    with open(f"/proc/{pid}/stat", "rb") as stat:
        fields = stat.read().rpartition(b")")[2].split()
    if not fields:
        raise ProcessLookupError
    return fields


def ending(processes: dict[int, int]) -> frozenset[int]:
    """Those that have ended, or are about to: nothing that they are sent matters any more.

    Their peers see their sockets closed a moment before their parent can wait for them.

    Args:
        processes: pid -> what to call it in the answer.

    """
    return frozenset(name for pid, name in processes.items() if _is_ending(pid))


def _is_ending(pid: int) -> bool:
    try:
        fields = stat_fields(pid)
        return fields[0] in (b"Z", b"X") or bool(int(fields[6]) & _PF_EXITING)
    except OSError:
        return False


def handles(pid: int, signum: int) -> bool:
    """Whether a process has a handler of its own for a signal."""
    try:
        with open(f"/proc/{pid}/status") as status:
            caught = next(line for line in status if line.startswith("SigCgt:"))
        return bool(signum) and bool(int(caught.split()[1], 16) >> (signum - 1) & 1)
    except (OSError, StopIteration):
        return False


def describe(pid: int) -> str:
    """A process for a person: `"sleep" is sleeping in the kernel (hrtimer_nanosleep)`."""
    states = {
        "R": "running",
        "S": "sleeping in the kernel",
        "D": "in uninterruptible sleep",
        "T": "stopped",
    }
    try:
        state = stat_fields(pid)[0].decode()
    except OSError:
        return "the process has ended"
    name, place = _read_proc(pid, "comm"), _read_proc(pid, "wchan")
    text = f'"{name}" is {states.get(state, f"in state {state}")}'
    return f"{text} ({place})" if place not in ("", "0") else text


def blocked_in(pid: int) -> str:
    """Where in the kernel a process's main thread waits; "" if it runs, or that is not known.

    It is the kernel's function, or `syscall 202` where the kernel keeps that to itself.
    """
    place = _read_proc(pid, "wchan")
    if place not in ("", "0"):
        return place
    number = _read_proc(pid, "syscall").partition(" ")[0]
    return f"syscall {number}" if number.isdigit() else ""


def _read_proc(pid: int, name: str) -> str:
    try:
        with open(f"/proc/{pid}/{name}") as file:
            return file.read().strip()
    except OSError:
        return ""


def group_of(pid: int) -> int:
    """The process group of a process; 0 if it is gone."""
    try:
        return os.getpgid(pid)
    except OSError:
        return 0

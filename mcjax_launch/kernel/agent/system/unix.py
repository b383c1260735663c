"""What every Unix does alike: start a process, wait for children, signal."""

from __future__ import annotations

import errno
import os
import sys

from ...wire import ulimits
from ...wire.signals import RESET_IN_RANKS

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    import resource
    from collections.abc import Mapping, Sequence

    from ...wire.ulimits import Limit

# There are too many processes or files, or there is too little memory.
_NO_ROOM = (errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
# What a process has used at its peak: macOS counts bytes, the others KiB.
_PEAK_UNIT = 1024 if sys.platform == "darwin" else 1


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
        for fd in own:
            os.close(fd)


def _become_standard(fds: Sequence[int]) -> None:
    for target, fd in enumerate(fds):
        os.dup2(fd, target)


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


def ended_child() -> Ended | None:
    """A child that has ended, not reaped yet; None if all still run.

    Raises:
        Childless: there are no children at all.

    """
    try:
        if not hasattr(os, "waitid"):  # macOS before Python 3.13
            return _reaped_child()
        found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        raise Childless from None
    return None if found is None else Ended(found.si_pid, _status(found))


def wait() -> None:
    """Wait until a child ends, which is not reaped."""
    if hasattr(os, "waitid"):
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
    else:
        _keep_reaped(*os.wait4(-1, 0))


def status_of(pid: int) -> int | None:
    """The status of one child that has ended, not reaped yet; None if it still runs."""
    found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    return None if found is None else _status(found)


def _status(found: os.waitid_result) -> int:
    return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status


# Where an end cannot be seen without being reaped: what each of those has used, and how those have
# ended that nobody has asked about yet.
_usage_of_reaped: dict[int, resource.struct_rusage] = {}
_unasked: list[Ended] = []


def _reaped_child() -> Ended | None:
    if not _unasked:
        _keep_reaped(*os.wait4(-1, os.WNOHANG))
    return _unasked.pop(0) if _unasked else None


def _keep_reaped(pid: int, status: int, used: resource.struct_rusage) -> None:
    if pid:
        _usage_of_reaped[pid] = used
        _unasked.append(Ended(pid, os.waitstatus_to_exitcode(status)))


def reap(pid: int) -> tuple[float, int]:
    """Let go of an ended child; what it used: seconds of processor time, and KiB at its peak."""
    used = _usage_of_reaped.pop(pid, None) or os.wait4(pid, 0)[2]
    return used.ru_utime + used.ru_stime, used.ru_maxrss // _PEAK_UNIT


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


def group_of(pid: int) -> int:
    """The process group of a process; 0 if it is gone."""
    try:
        return os.getpgid(pid)
    except OSError:
        return 0

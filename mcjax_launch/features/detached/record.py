"""Files of a detached job: what it is, how it ended, and a lock that its launcher holds."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
from typing import Any

from mcjax_launch.features.detached.folders import open_private
from mcjax_launch.machine.system import LINUX, read_system_text
from mcjax_launch.wire.value import Value
from mcjax_launch.wording import cut_end

_DESCRIPTION, _END, _LOCK = "job.json", "end.json", "lock"
# Bytes for the end, which are written at the start: later the disk may be full.
_ROOM = 8192
_LONGEST_MESSAGE = 500
_START_TIME = 19  # among the fields of /proc/PID/stat behind the process's name


class Description(Value):
    """Facts about a job that do not change while it runs.

    Args:
        id: id of the job.
        program: command line of the program.
        host: name of the launcher's machine.
        boot: boot id of that machine; "" if unknown.
        pid: process id of the launcher, in its own PID namespace.
        ranks: number of ranks.
        hosts: names of the ranks' hosts.
        since: start time of the job, in seconds since the epoch.
        namespace: name of the launcher's PID namespace; "" if unknown.
        started: time when the kernel started the launcher, in ticks since its boot; "" if unknown.

    """

    id: str
    program: tuple[str, ...]
    host: str
    boot: str
    pid: int
    ranks: int
    hosts: tuple[str, ...]
    since: float
    namespace: str = ""
    started: str = ""


class JobEnd(Value):
    """End of a job.

    Args:
        exit_status: exit status of the job.
        message: line that says more.
        at: time, in seconds since the epoch.
        dropped: line about output that could not be written; "" if there is none.

    """

    exit_status: int
    message: str
    at: float
    dropped: str = ""


def identify_machine() -> tuple[str, str]:
    """Return this machine's name and boot id; the id is "" if unknown."""
    return os.uname().nodename, read_system_text("/proc/sys/kernel/random/boot_id") if LINUX else ""


def identify_process(pid: int) -> tuple[str, str]:
    """Return this process's PID namespace, and when a process of it started; "" if unknown."""
    try:
        namespace = os.readlink("/proc/self/ns/pid") if LINUX else ""
    except OSError:
        namespace = ""
    _, _, fields = read_system_text(f"/proc/{pid}/stat").rpartition(")") if LINUX else ("", "", "")
    return namespace, fields.split()[_START_TIME] if fields else ""


def signal_launcher(job: Description, signum: int) -> bool:
    """Send the launcher of a job a signal; return False if no process here is that launcher."""
    try:
        # Opened before the checks, so it is not a later process with the same number.
        launcher = os.pidfd_open(job.pid) if LINUX else -1
    except ProcessLookupError:
        return False
    try:
        here = (*identify_machine(), *identify_process(job.pid))
        is_launcher = here == (job.host, job.boot, job.namespace, job.started)
        if is_launcher and LINUX:
            signal.pidfd_send_signal(launcher, signum)
        elif is_launcher:
            os.kill(job.pid, signum)
    except ProcessLookupError:
        return False
    finally:
        if launcher >= 0:
            os.close(launcher)
    return is_launcher


def write_description(folder: str, description: Description) -> None:
    """Write the description of a job in one atomic step.

    Raises:
        OSError: the file cannot be written.

    """
    fd = open_private(folder, f"{_DESCRIPTION}.part", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    with open(fd, "w", encoding="utf-8") as file:
        file.write(_format(description))
    path = os.path.join(folder, _DESCRIPTION)
    os.replace(f"{path}.part", path)


def reserve_end(folder: str) -> None:
    """Make room on the disk for the end of a job.

    Raises:
        OSError: there is none.

    """
    with open(open_private(folder, _END, os.O_WRONLY | os.O_CREAT), "wb") as file:
        file.write(b" " * _ROOM)


def write_end(folder: str, end: JobEnd) -> None:
    """Write the end of a job into the room that is reserved for it.

    Raises:
        OSError: the file cannot be written.

    """
    cut = end.copy_with(message=cut_end(end.message, _LONGEST_MESSAGE))
    fd = open_private(folder, _END, os.O_WRONLY | os.O_CREAT)
    try:
        os.pwrite(fd, _format(cut).encode().ljust(_ROOM), 0)
    finally:
        os.close(fd)


def _format(value: Value) -> str:
    return json.dumps({name: getattr(value, name) for name in value._fields})


def read_description(folder: str) -> Description | None:
    """Return the description of a job; None if it is missing or unreadable."""
    found: Description | None = _read(folder, _DESCRIPTION, Description)
    if found is None:
        return None
    return found.copy_with(program=tuple(found.program), hosts=tuple(found.hosts))


def read_end(folder: str) -> JobEnd | None:
    """Return how a job ended; None if it runs, or its launcher was killed."""
    found: JobEnd | None = _read(folder, _END, JobEnd)
    return found


def _read(folder: str, name: str, kind: Any) -> Any:
    try:
        with open(open_private(folder, name, os.O_RDONLY), encoding="utf-8") as file:
            fields = json.load(file)
        return kind(**{name: fields[name] for name in kind._fields if name in fields})
    except (OSError, ValueError, KeyError, TypeError):
        return None


def lock(folder: str) -> int:
    """Lock a job's folder while this process lives; return the descriptor of the lock.

    Raises:
        OSError: the lock cannot be made.

    """
    fd = open_private(folder, _LOCK, os.O_RDWR | os.O_CREAT)
    fcntl.flock(fd, fcntl.LOCK_EX)
    return fd


def wait_for_launcher(folder: str, limit_s: float | None = 0.0) -> bool:
    """Wait until no launcher of the job runs here; return False if `limit_s` is over first."""
    try:
        fd = open_private(folder, _LOCK, os.O_RDONLY)
    except OSError:
        return True
    try:
        if limit_s == 0.0:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        else:
            with _interrupted_after(limit_s):
                fcntl.flock(fd, fcntl.LOCK_SH)
    except (BlockingIOError, InterruptedError):
        return False
    except OSError:  # no locks here
        return True
    finally:
        os.close(fd)
    return True


@contextlib.contextmanager
def _interrupted_after(limit_s: float | None) -> Any:
    """Raise InterruptedError in the body of the `with` statement after so many seconds."""

    def interrupt(*_: object) -> None:
        raise InterruptedError

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, limit_s or 0.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)

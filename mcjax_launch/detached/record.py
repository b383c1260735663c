"""Files of a detached job: what it is, how it ended, and a lock that its launcher holds."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import time
from typing import Any

from mcjax_launch.detached.folders import open_private
from mcjax_launch.machine.system import LINUX, read_system_text
from mcjax_launch.wire.value import Value

_DESCRIPTION, _END, _LOCK = "job.json", "end.json", "lock"
_MOST_READ = 1 << 20
_START_TIME = 19  # among the fields of /proc/PID/stat behind the process's name


class Description(Value):
    """Facts about a job that do not change while it runs.

    Args:
        id: id of the job.
        program: command line of the program.
        host: name of the launcher's machine.
        boot: boot id of that machine; "" if unknown.
        pid: process id of the launcher, in its own PID namespace.
        namespace: name of that PID namespace; "" if unknown.
        started: time when the kernel started the launcher, in ticks since its boot; "" if unknown.
        ranks: number of ranks.
        hosts: names of the ranks' hosts.
        since: start time of the job, in seconds since the epoch.

    """

    id: str
    program: tuple[str, ...]
    host: str
    boot: str
    pid: int
    namespace: str
    started: str
    ranks: int
    hosts: tuple[str, ...]
    since: float


class JobEnd(Value):
    """End of a job: exit status, a line that says more, and when, in seconds since the epoch."""

    exit_status: int
    message: str
    at: float


def identify_machine() -> tuple[str, str]:
    """Return this machine's name and boot id; the id is "" if unknown."""
    return os.uname().nodename, read_system_text("/proc/sys/kernel/random/boot_id") if LINUX else ""


def identify_process(pid: int) -> tuple[int, str, str]:
    """Return a pid, this process's PID namespace, and when the process started; "" if unknown."""
    try:
        namespace = os.readlink("/proc/self/ns/pid") if LINUX else ""
    except OSError:
        namespace = ""
    _, _, fields = read_system_text(f"/proc/{pid}/stat").rpartition(")") if LINUX else ("", "", "")
    return pid, namespace, fields.split()[_START_TIME] if fields else ""


def signal_launcher(job: Description, signum: int) -> bool:
    """Send the launcher of a job a signal; return False if no process here is that launcher."""
    try:
        # Opened before the checks, so it is not a later process with the same number.
        launcher = os.pidfd_open(job.pid) if LINUX else -1
    except ProcessLookupError:
        return False
    try:
        here = (*identify_machine(), *identify_process(job.pid))
        is_launcher = here == (job.host, job.boot, job.pid, job.namespace, job.started)
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


def write(folder: str, value: Description | JobEnd) -> None:
    """Write the description or the end of a job in one atomic step.

    Raises:
        OSError: the file cannot be written.

    """
    name = _DESCRIPTION if isinstance(value, Description) else _END
    fd = open_private(folder, f"{name}.part", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    with open(fd, "w", encoding="utf-8") as file:
        json.dump({name: getattr(value, name) for name in value._fields}, file)
    os.replace(os.path.join(folder, f"{name}.part"), os.path.join(folder, name))


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
            fields = json.loads(file.read(_MOST_READ))
        return kind(**{name: fields[name] for name in kind._fields})
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


def make_end(status: int, message: str) -> JobEnd:
    """Return the end of a job that ends now."""
    return JobEnd(status, message, time.time())

"""Folders of detached jobs: what they hold, whether the job runs, and how a job is found.

`job.json` in a job's folder has two lines: what the job is, and room for how it has ended, because
the disk may be full by then. The launcher holds a lock on it as long as it lives.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from typing import Any

from mcjax_launch.errors import LaunchError
from mcjax_launch.features.detached.output import OutputFile
from mcjax_launch.machine import own_paths
from mcjax_launch.machine.system import LINUX, read_system_text
from mcjax_launch.wire.exit_status import HOST_LOST
from mcjax_launch.wire.value import Value
from mcjax_launch.wording import cut_end

RUNNING, ENDED, LOST = "running", "ended", "lost"
#: What to do where the folder cannot be used.
OTHER = "set XDG_STATE_HOME to another folder"
_FILE, _UNFINISHED = "job.json", "."  # the latter begins a folder's name until its file is there
# So many ended jobs are kept: a failure may be read later.
_MOST_KEPT = 40
# Bytes for the end of a job, and characters of its message, of which some need twelve bytes.
_ROOM, _LONGEST_MESSAGE = 8192, 500
_START_TIME = 19  # among the fields of /proc/PID/stat behind the process's name
_LOOK_S = 0.1  # between two looks at a lock that nothing announces


def identify(pid: int) -> list[str]:
    """Return what tells a process from all others that have its process id, now or elsewhere.

    That is its machine with the id of its boot, the PID namespace that the id is of, and the start
    of the process in ticks since the boot; "" for what the system does not tell.
    """
    host, namespace = os.uname().nodename, ""
    if not LINUX:
        return [host, "", "", ""]
    with contextlib.suppress(OSError):
        namespace = os.readlink("/proc/self/ns/pid")
    boot = read_system_text("/proc/sys/kernel/random/boot_id")
    stat = read_system_text(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return [host, boot, namespace, stat[_START_TIME] if stat else ""]


class DetachedJob(Value):
    """Detached job, as it was when its folder was read.

    Args:
        folder: path of its folder.
        id: its id.
        program: command line of the program.
        ranks: number of ranks.
        hosts: names of the ranks' hosts.
        since: start time of the job, in seconds since the epoch.
        pid: process id of the launcher, in its own PID namespace.
        launcher: identity of that process; see `identify`.
        state: RUNNING, ENDED, or LOST if the launcher is gone without having written an end.
        exit_status: exit status of the job; None while it runs.
        message: how the job has ended; "" while it runs.

    """

    folder: str
    id: str
    program: Sequence[str]
    ranks: int
    hosts: Sequence[str]
    since: float
    pid: int
    launcher: list[str]
    state: str
    exit_status: int | None
    message: str

    @property
    def launcher_host(self) -> str:
        """Name of the launcher's machine."""
        return self.launcher[0]

    @property
    def is_here(self) -> bool:
        """True if the launcher is on this machine."""
        return self.launcher_host == os.uname().nodename

    @property
    def is_reachable(self) -> bool:
        """True if the launcher runs, and its process id is valid here."""
        return self.state == RUNNING and identify(self.pid) == self.launcher

    def signal(self, signum: int, action: str) -> None:
        """Send the launcher a signal, unless the job has ended.

        Args:
            signum: number of the signal; 0 only checks that the launcher can be reached.
            action: the option for which, without its dashes.

        Raises:
            LaunchError: the job runs on another machine, or in another PID namespace.

        """
        if self.is_reachable:
            with contextlib.suppress(ProcessLookupError):  # it has ended just now
                os.kill(self.pid, signum)
        elif self.wait(0.0).state == RUNNING:
            where = " in another container or PID namespace" if self.is_here else ""
            raise LaunchError(
                f"job {self.id} runs on {self.launcher_host}{where}, as process "
                f"{self.pid}: mcjax-launch --{action} {self.id} works only there"
            )

    def wait(self, limit_s: float | None) -> DetachedJob:
        """Wait until the job has ended, or `limit_s` is over; return the job as it is then."""
        until = None if limit_s is None else time.monotonic() + limit_s
        while True:
            job = _read(self.folder) or self.copy_with(state=LOST, exit_status=HOST_LOST)
            if job.state != RUNNING or (until is not None and time.monotonic() >= until):
                return job
            time.sleep(_LOOK_S)


class JobFolder:
    """The launcher's side of a job's folder, which it makes, and locks until it ends.

    Args:
        job_id: id of the job.
        about: its program, ranks and hosts, named as in DetachedJob.

    Attributes:
        fd: descriptor that holds the lock.
        output: file for what the launcher and the ranks print.

    Raises:
        LaunchError: the folder cannot be made, or other users can open it.

    """

    def __init__(self, job_id: str, about: Mapping[str, object]) -> None:
        parent, pid = get_jobs_folder(), os.getpid()
        folder, new = os.path.join(parent, job_id), os.path.join(parent, _UNFINISHED + job_id)
        told = {"id": job_id, **about, "since": round(time.time(), 3)}
        told |= {"pid": pid, "launcher": identify(pid)}
        line = f"{json.dumps(told)}\n".encode()
        self._end_at = len(line)
        with _reporting(folder):
            own_paths.make_own_folder(parent)
            os.mkdir(new, 0o700)
            path, flags = os.path.join(new, _FILE), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
            self.fd = os.open(path, flags, 0o600)
            fcntl.flock(self.fd, fcntl.LOCK_EX)
            with open(self.fd, "wb", closefd=False) as file:
                file.write(line + b" " * _ROOM)
            self.output = OutputFile(new)
            os.rename(new, folder)

    def write_end(self, exit_status: int, message: str) -> None:
        """Record how the job has ended."""
        dropped = self.output.describe_dropped()
        message = "; ".join(filter(None, (cut_end(message, _LONGEST_MESSAGE), dropped)))
        end = {"exit_status": exit_status, "message": message}
        with contextlib.suppress(OSError):  # the disk is gone
            os.pwrite(self.fd, json.dumps(end).encode(), self._end_at)


def remove_folder(job_id: str) -> None:
    """Remove the folder of a job, also an unfinished one; ignore errors."""
    for name in (job_id, _UNFINISHED + job_id):
        shutil.rmtree(os.path.join(get_jobs_folder(), name), ignore_errors=True)


@contextlib.contextmanager
def _reporting(folder: str) -> Any:
    """Raise an OSError in the body of the `with` statement as a LaunchError."""
    try:
        yield
    except OSError as error:
        raise LaunchError(f"{folder}: {error.strerror or error}: {OTHER}") from None


def get_jobs_folder() -> str:
    """Return the path of the folder that contains the folders of all detached jobs.

    Raises:
        LaunchError: it is not absolute, as where no home folder is known.

    """
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    if not os.path.isabs(state):
        raise LaunchError(f"detached jobs: {state} is not an absolute path: {OTHER}")
    return os.path.join(state, "mcjax-launch", "jobs")


def _read(folder: str) -> DetachedJob | None:
    """Return the job of a folder; None if it holds no job."""
    try:
        with open(os.path.join(folder, _FILE), "rb") as file:
            is_locked = _is_locked(file.fileno())
            told, end = (json.loads(line.strip() or b"null") for line in file)
        known = {name: told[name] for name in DetachedJob._fields if name in told}
        found = DetachedJob(folder=folder, state=RUNNING, exit_status=None, message="", **known)
    except (OSError, ValueError, TypeError, LookupError):
        return None
    if is_locked or (end is None and not found.is_here):
        return found
    if end is not None:
        return found.copy_with(state=ENDED, **end)
    why = "its launcher was killed, or this machine was restarted"
    return found.copy_with(state=LOST, exit_status=HOST_LOST, message=why)


def _is_locked(fd: int) -> bool:
    """Return whether a launcher has locked its job's file; other readers do not count."""
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def find_all_jobs() -> list[DetachedJob]:
    """Return all jobs, the oldest first, after removing those that ended before the last forty.

    Raises:
        LaunchError: the folder of the jobs cannot be read, or is open to other users.

    """
    parent = get_jobs_folder()
    if not os.path.isdir(parent):
        return []
    with _reporting(parent):
        own_paths.make_own_folder(parent)  # it only checks the folder, which is there
        names = [name for name in os.listdir(parent) if not name.startswith(_UNFINISHED)]
    found = [job for name in names if (job := _read(os.path.join(parent, name))) is not None]
    jobs = sorted(found, key=lambda job: job.since)
    old = [job for job in jobs if job.state != RUNNING][:-_MOST_KEPT]
    for job in old:
        shutil.rmtree(job.folder, ignore_errors=True)
    return [job for job in jobs if job not in old]


def find(job_id: str) -> DetachedJob:
    """Return the only job whose id begins with `job_id`; "": the running job started last, or any.

    Raises:
        LaunchError: no id, or more than one, begins with it.

    """
    jobs = find_all_jobs()
    found = [job for job in jobs if job.id.startswith(job_id)]
    if not job_id and found:
        return max(found, key=lambda job: (job.is_here, job.state == RUNNING, job.since))
    if len(found) == 1:
        return found[0]
    ids = ", ".join(job.id for job in (found or jobs)[-_MOST_KEPT:])
    if found:
        raise LaunchError(f"{job_id}: several job ids begin with that: {ids}")
    if not job_id:
        raise LaunchError("there is no detached job: mcjax-launch --detach PROGRAM starts one")
    there_are = f"there are {ids}" if jobs else "there is none"
    raise LaunchError(f"{job_id}: no such detached job; {there_are}")

"""The description and the state of a detached job, beside its events."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Sequence
from typing import Any

from mcjax_launch.detached.folders import open_private
from mcjax_launch.kernel.wire.system import LINUX, text_of
from mcjax_launch.kernel.wire.value import Value

_DESCRIPTION, _STATE, _ERRORS = "job.json", "state", "errors"
# The state has its room from the start: a disk that is full later is no obstacle.
_STATE_BYTES = 4096
# Of a text in it; in JSON it may be six times as long.
_LONGEST_TEXT = 500
_MOST_HOSTS = 64
_MOST_READ = 1 << 20
_TRIES = 5


class Description(Value):
    """Facts that do not change while a job runs.

    Args:
        id: of the job.
        program: with its arguments.
        host: on which the launcher runs.
        boot: the number of that machine's start.
        pid: of the launcher.
        ranks: how many there are.
        hosts: the names of those that have ranks.
        since: when the job was started, in seconds since the epoch.

    """

    id: str
    program: tuple[str, ...]
    host: str
    boot: str
    pid: int
    ranks: int
    hosts: tuple[str, ...]
    since: float


class JobState(Value):
    """State of a job, as its launcher writes it.

    Args:
        exit_status: of the job, once it has ended.
        message: how it ended, in one line.
        at: when that was, in seconds since the epoch.
        waits: what it waits for a terminal for; "" if for nothing.
        full: the disk is full, so what happens is not written.
        lost: how many bytes were not written for that reason.

    """

    exit_status: int | None = None
    message: str = ""
    at: float = 0.0
    waits: str = ""
    full: bool = False
    lost: int = 0


def here() -> tuple[str, str]:
    """Return this machine's name and the number of its start; "" if that is not known."""
    return os.uname().nodename, text_of("/proc/sys/kernel/random/boot_id") if LINUX else ""


def write_description(folder: str, description: Description) -> None:
    """Write the description of a job; a reader never gets a part of it.

    Raises:
        OSError: that is not possible.

    """
    fields = {name: getattr(description, name) for name in description._fields}
    fd = open_private(folder, f"{_DESCRIPTION}.part", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    with open(fd, "w", encoding="utf-8") as file:
        file.write(f"{json.dumps(fields)}\n")
    os.replace(os.path.join(folder, f"{_DESCRIPTION}.part"), os.path.join(folder, _DESCRIPTION))


def read_description(folder: str) -> Description | None:
    """Return the description of a job; None if it is missing or cannot be read."""
    fields = _read(folder, _DESCRIPTION)
    try:
        description = Description(**_known(Description, fields or {}))
    except TypeError:
        return None
    return description.replaced(program=tuple(description.program), hosts=tuple(description.hosts))


def read_state(folder: str) -> JobState:
    """Return the state that the job's launcher has last written."""
    for _ in range(_TRIES):  # it may be written at this moment
        fields = _read(folder, _STATE)
        if fields is not None:
            return JobState(**_known(JobState, fields))
    return JobState()


def _known(kind: type[Value], fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that this version knows: a newer launcher may have written more."""
    return {name: fields[name] for name in kind._fields if name in fields}


def _read(folder: str, name: str) -> dict[str, Any] | None:
    try:
        with open(open_private(folder, name, os.O_RDONLY), encoding="utf-8") as file:
            fields = json.loads(file.read(_MOST_READ))
    except (OSError, ValueError):
        return None
    return fields if isinstance(fields, dict) else None


def is_locked(folder: str) -> bool:
    """Return whether the launcher of a job on this machine still runs."""
    try:
        fd = open_private(folder, _STATE, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # no locks here
        return False
    finally:
        os.close(fd)
    return False


class StateFile:
    """File with a job's state, which is locked as long as the launcher runs.

    Args:
        folder: of the job.

    Raises:
        OSError: it cannot be written, or not be locked.

    """

    def __init__(self, folder: str) -> None:
        self.state = JobState()
        self._fd = open_private(folder, _STATE, os.O_RDWR | os.O_CREAT)
        fcntl.flock(self._fd, fcntl.LOCK_EX)  # who asks whether it is locked holds it for a moment
        os.pwrite(self._fd, b"{}".ljust(_STATE_BYTES), 0)
        self.change()

    def change(self, **fields: object) -> None:
        """Change fields of the state, and write it in place."""
        short = {
            name: value[:_LONGEST_TEXT] if isinstance(value, str) else value
            for name, value in fields.items()
        }
        self.state = self.state.replaced(**short)
        known = {name: getattr(self.state, name) for name in self.state._fields}
        text = json.dumps(known).encode()
        with contextlib.suppress(OSError):  # the disk may be gone altogether
            os.pwrite(self._fd, text.ljust(_STATE_BYTES - 1) + b"\n", 0)

    def end(self, exit_status: int, message: str) -> None:
        """Write how the job has ended."""
        self.change(exit_status=exit_status, message=message, at=time.time(), waits="")

    def close(self) -> None:
        """Give up the lock."""
        os.close(self._fd)


def open_errors(folder: str) -> int:
    """Open the file for what a launcher says when its starter is gone: the traceback of a bug."""
    try:
        return open_private(folder, _ERRORS, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    except OSError:
        return os.open(os.devnull, os.O_WRONLY)


def read_errors(folder: str) -> list[str]:
    """Return the lines of the file that `open_errors` opens."""
    try:
        with open(open_private(folder, _ERRORS, os.O_RDONLY), errors="replace") as file:
            return file.read(_MOST_READ).splitlines()
    except OSError:
        return []


def short_hosts(names: Sequence[str]) -> tuple[str, ...]:
    """Return the hosts' names for the description."""
    return tuple(names[:_MOST_HOSTS]) + (("...",) if len(names) > _MOST_HOSTS else ())

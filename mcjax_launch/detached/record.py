"""Description and state of a detached job, as files beside its output."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Sequence
from typing import Any

from mcjax_launch.detached.folders import open_private
from mcjax_launch.machine.system import LINUX, read_system_text
from mcjax_launch.wire.value import Value

_DESCRIPTION, _STATE = "job.json", "state"
# The state has its room from the start: a disk that is full later is no obstacle.
_STATE_BYTES = 4096
# Of a text in it; in JSON it may be six times as long.
_LONGEST_TEXT = 500
_MOST_HOSTS = 64
_MOST_READ = 1 << 20
_TRIES = 5


class Description(Value):
    """Facts about a job that do not change while it runs.

    Args:
        id: id of the job.
        program: command line of the program.
        host: name of the launcher's machine.
        boot: boot id of that machine; "" if unknown.
        pid: process id of the launcher.
        ranks: number of ranks.
        hosts: names of the ranks' hosts; the last is "..." if there are too many.
        since: start time of the job, in seconds since the epoch.

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
    """State of a job, written by its launcher.

    Args:
        exit_status: exit status of the job; None while it runs.
        message: line that says how the job ended.
        at: end time, in seconds since the epoch; 0 while it runs.
        full: True if the disk is full, so that output is not kept.
        lost: number of bytes dropped because the disk was full.

    """

    exit_status: int | None = None
    message: str = ""
    at: float = 0.0
    full: bool = False
    lost: int = 0


def identify_machine() -> tuple[str, str]:
    """Return this machine's name and boot id; the id is "" if unknown."""
    return os.uname().nodename, read_system_text("/proc/sys/kernel/random/boot_id") if LINUX else ""


def write_description(folder: str, description: Description) -> None:
    """Write the description of a job in one atomic step.

    Raises:
        OSError: the file cannot be written.

    """
    _replace(
        folder, _DESCRIPTION, {name: getattr(description, name) for name in description._fields}
    )


def _replace(folder: str, name: str, fields: object) -> None:
    """Write a file of a job as JSON in one atomic step."""
    fd = open_private(folder, f"{name}.part", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    with open(fd, "w", encoding="utf-8") as file:
        file.write(f"{json.dumps(fields)}\n")
    os.replace(os.path.join(folder, f"{name}.part"), os.path.join(folder, name))


def write_rows(folder: str, name: str, rows: Sequence[object]) -> None:
    """Write what the job's ranks do, such as "gpus"; ignore errors, such as a full disk."""
    with contextlib.suppress(OSError):
        _replace(folder, f"{name}.json", {name: list(rows)})


def read_rows(folder: str, name: str) -> list[object]:
    """Return what `write_rows` wrote last; [] if nothing."""
    rows = (_read(folder, f"{name}.json") or {}).get(name)
    return rows if isinstance(rows, list) else []


def read_description(folder: str) -> Description | None:
    """Return the description of a job; None if it is missing or unreadable."""
    fields = _read(folder, _DESCRIPTION)
    try:
        description = Description(**_select_known(Description, fields or {}))
    except TypeError:
        return None
    return description.copy_with(program=tuple(description.program), hosts=tuple(description.hosts))


def read_state(folder: str) -> JobState:
    """Return the state that the job's launcher wrote last; an empty state if unreadable."""
    for _ in range(_TRIES):  # it may be written at this moment
        fields = _read(folder, _STATE)
        if fields is not None:
            return JobState(**_select_known(JobState, fields))
    return JobState()


def _select_known(kind: type[Value], fields: dict[str, Any]) -> dict[str, Any]:
    """Return only the fields that this version of `kind` has; newer launchers may write more."""
    return {name: fields[name] for name in kind._fields if name in fields}


def _read(folder: str, name: str) -> dict[str, Any] | None:
    try:
        with open(open_private(folder, name, os.O_RDONLY), encoding="utf-8") as file:
            fields = json.loads(file.read(_MOST_READ))
    except (OSError, ValueError):
        return None
    return fields if isinstance(fields, dict) else None


def is_locked(folder: str) -> bool:
    """Return whether a job's launcher runs on this machine, and so locks the state file."""
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
    """File with a job's state, locked while the launcher runs.

    Args:
        folder: folder of the job.

    Raises:
        OSError: the file cannot be written or locked.

    """

    def __init__(self, folder: str) -> None:
        self.state = JobState()
        self._fd = open_private(folder, _STATE, os.O_RDWR | os.O_CREAT)
        fcntl.flock(self._fd, fcntl.LOCK_EX)  # who asks whether it is locked holds it for a moment
        os.pwrite(self._fd, b"{}".ljust(_STATE_BYTES), 0)
        self.change()

    def change(self, **fields: object) -> None:
        """Change fields of the state, and write the state to the file."""
        short = {
            name: value[:_LONGEST_TEXT] if isinstance(value, str) else value
            for name, value in fields.items()
        }
        self.state = self.state.copy_with(**short)
        known = {name: getattr(self.state, name) for name in self.state._fields}
        text = json.dumps(known).encode()
        with contextlib.suppress(OSError):  # the disk may be gone altogether
            os.pwrite(self._fd, text.ljust(_STATE_BYTES - 1) + b"\n", 0)

    def end(self, exit_status: int, message: str) -> None:
        """Write the exit status, the message and the time of the job's end."""
        self.change(exit_status=exit_status, message=message, at=time.time())

    def close(self) -> None:
        """Close the file, which releases the lock."""
        os.close(self._fd)


def shorten_hosts(names: Sequence[str]) -> tuple[str, ...]:
    """Return hosts' names for the description; of many, the first, and "..."."""
    return tuple(names[:_MOST_HOSTS]) + (("...",) if len(names) > _MOST_HOSTS else ())

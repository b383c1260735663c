"""Folders of detached jobs, below the user's state folder; only this user can open them."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator

from mcjax_launch.errors import LaunchError
from mcjax_launch.machine import own_paths

_ID = re.compile(r"[0-9a-f]{8}")
_NEW = ".new"  # behind the id, until the folder is locked
#: What to do where the folder cannot be used.
OTHER = "set XDG_STATE_HOME to another folder"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def get_state_folder() -> str:
    """Return the path of the folder that contains the folders of all detached jobs.

    Raises:
        LaunchError: no home folder is known, or XDG_STATE_HOME is not absolute.

    """
    given = os.environ.get("XDG_STATE_HOME", "")
    state = given or os.path.expanduser("~/.local/state")
    if given and not os.path.isabs(given):
        raise LaunchError(f"detached jobs: XDG_STATE_HOME={given} is not an absolute path")
    if not os.path.isabs(state):
        raise LaunchError(f"detached jobs: no home folder is known: {OTHER}")
    return os.path.join(state, "mcjax-launch", "jobs")


def make_job_folder(job_id: str) -> tuple[str, int]:
    """Create the folder of a job; return its path, and a descriptor that locks it.

    The lock says that the job is being started.

    Raises:
        LaunchError: the folder cannot be created, or other users can open it.

    """
    parent = get_state_folder()
    path = os.path.join(parent, job_id)
    try:
        _check_unexposed(parent)
        own_paths.make_private_folder(parent)
        new = f"{path}{_NEW}"
        os.mkdir(new, 0o700)
        for folder in (os.path.dirname(parent), parent, new):
            check_private(folder)
        lock = os.open(new, _FOLDER)
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.rename(new, path)
    except OSError as error:
        raise LaunchError(
            f"--detach: {error.filename or path}: {error.strerror}: {OTHER}"
        ) from None
    return path, lock


def is_starting(folder: str) -> bool:
    """Return whether the process that has created a job's folder waits for the job's start."""
    try:
        fd = os.open(folder, _FOLDER)
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


def _check_unexposed(folder: str) -> None:
    """Check that no other user can put a folder of theirs in the place of this one.

    Raises:
        LaunchError: the folder fails the check.
        OSError: the path cannot be followed.

    """
    if exposed := own_paths.find_exposed_folder(folder):
        raise LaunchError(f"{folder}: {own_paths.explain_exposure(exposed)}: {OTHER}")


def check_private(folder: str) -> None:
    """Check that a folder is no link, belongs to this user, and is closed to other users.

    Raises:
        LaunchError: the folder fails the check.
        OSError: the folder does not exist.

    """
    if why := own_paths.explain_open_folder(folder):
        raise LaunchError(f"{folder} {why}: {OTHER}")


def iterate_job_folders() -> Iterator[str]:
    """Yield the paths of the folders of all jobs.

    Raises:
        LaunchError: other users can write to the folder that contains them, or it is unreadable.

    """
    parent = get_state_folder()
    try:
        _check_unexposed(parent)
        for folder in (os.path.dirname(parent), parent):
            check_private(folder)
        names = sorted(os.listdir(parent))
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise LaunchError(f"{parent}: {error.strerror}") from None
    for name in names:
        if _ID.fullmatch(name):
            yield os.path.join(parent, name)


def open_private(folder: str, name: str, flags: int) -> int:
    """Open a file in a job's folder, but no symbolic link; a new file gets mode 0600.

    Raises:
        OSError: the file cannot be opened.

    """
    inside = os.open(folder, _FOLDER)
    try:
        return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=inside)
    finally:
        os.close(inside)


def remove_folder(folder: str) -> None:
    """Remove the folder of a job; ignore errors."""
    import shutil

    shutil.rmtree(folder, ignore_errors=True)

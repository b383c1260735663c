"""The job's private folder on a host: sockets, staged files, and whatever ranks leave in it."""

from __future__ import annotations

import os

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from collections.abc import Callable

_LAST_RESORT = "/tmp"
# A unix socket's path has 107 bytes in all, and 103 on macOS; 25 of them are ours.
_LONGEST_SOCKET_FOLDER = 78
# For JAX a socket's path is part of a URI, in which not every gRPC decodes what has been quoted.
_SAME_IN_A_URI = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._~-")


class NoFolder(Exception):
    """There is no place for the job's private folder on this host: a full or read-only disk.

    Args:
        place: where it was to be.
        error: what the system said.

    """

    def __init__(self, place: str, error: OSError) -> None:
        super().__init__(
            f"cannot write to {place}: {error.strerror}; set TMPDIR to another directory"
        )


def make() -> str:
    """A new private folder (0700), in TMPDIR or /tmp; in paths like its own, sockets can be made.

    Raises:
        NoFolder: neither can be written.

    """
    base = os.path.abspath(os.environ.get("TMPDIR") or _LAST_RESORT)
    if _is_fit_for_sockets(base) and os.access(base, os.W_OK | os.X_OK):
        try:
            return _new_folder(base)
        except OSError:
            pass
    try:
        return _new_folder(_LAST_RESORT)
    except OSError as error:
        raise NoFolder(_LAST_RESORT, error) from None


def _is_fit_for_sockets(base: str) -> bool:
    return len(base) <= _LONGEST_SOCKET_FOLDER and set(base) <= _SAME_IN_A_URI


def _new_folder(base: str) -> str:
    folder = os.path.join(base, f"mcjax-{os.urandom(6).hex()}")
    os.mkdir(folder, 0o700)
    return folder


def remove(folder: str, between: Callable[[], object] = lambda: None) -> str:
    """Remove a folder with all that is in it, also what forbids it; links are not followed.

    Each folder below is moved up into this one first: however deep they are, no path gets too
    long, and nothing is recursive.

    Args:
        folder: what to remove.
        between: called after each folder, for there may be many.

    Returns:
        what is in the way, with the reason; "" if nothing is.

    """
    moved = os.path.join(folder, f"removed-{os.urandom(6).hex()}-")
    ahead, number, errors = [folder], 0, [""]
    while ahead:
        at = ahead.pop()
        try:
            os.chmod(at, 0o700)
            entries = list(os.scandir(at))
        except OSError as error:
            errors.append(_in_words(at, error))
            continue
        for entry in entries:
            target = f"{moved}{number}"
            errors.append(_clear_away(entry, target))
            if entry.is_dir(follow_symlinks=False) and os.path.isdir(target):
                ahead.append(target)
                number += 1
        if at != folder:
            errors.append(_remove_empty(at))
        between()
    return next(filter(None, errors), "") or _remove_empty(folder)


def _clear_away(entry: os.DirEntry[str], target: str) -> str:
    """Unlink it, or move a folder to `target`; what is in the way."""
    try:
        if entry.is_dir(follow_symlinks=False):
            os.chmod(entry.path, 0o700)  # it is written to when it is moved
            os.rename(entry.path, target)
        else:
            os.unlink(entry.path)
    except OSError as error:
        return _in_words(entry.path, error)
    return ""


def _remove_empty(folder: str) -> str:
    try:
        os.rmdir(folder)
    except OSError as error:
        return _in_words(folder, error)
    return ""


def _in_words(path: str, error: OSError) -> str:
    """What is in the way; nothing is if somebody else has removed it."""
    return "" if isinstance(error, FileNotFoundError) else f"{path}: {error.strerror}"

"""Job's private folder on a host: holds sockets, staged files, and files that ranks leave."""

from __future__ import annotations

import os

from ..machine import temporary_folder

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable


# Bytes: a unix socket's path may have 107, on macOS 103, and names below the folder take 25.
_LONGEST_SOCKET_FOLDER = 78
# JAX puts a socket's path into a URI, and some versions of gRPC do not decode quoted characters.
_SAME_IN_A_URI = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._~-")


def make() -> str:
    """Make a new private folder, with a path that is short enough for sockets; return the path.

    Raises:
        NoFolder: the folder cannot be made.

    """
    return temporary_folder.make("mcjax-", is_fit=_is_fit_for_sockets)


def _is_fit_for_sockets(base: str) -> bool:
    return len(base) <= _LONGEST_SOCKET_FOLDER and set(base) <= _SAME_IN_A_URI


def remove(folder: str, between: Callable[[], object] = lambda: None) -> str:
    """Remove a folder with everything in it, even if permissions forbid it; follow no links.

    Args:
        folder: path of the folder to remove.
        between: called after each subfolder, so that a long removal can send heartbeats.

    Returns:
        path and reason of the first failure; "" if everything was removed.

    """
    folders, errors = [folder], [""]
    for at in folders:  # grows by the subfolders of each
        try:
            os.chmod(at, 0o700)
            entries = list(os.scandir(at))
        except OSError as error:
            errors.append(_format_error(at, error))
            continue
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.path)
            else:
                errors.append(_try_remove(os.unlink, entry.path))
        between()
    errors += [_try_remove(os.rmdir, at) for at in reversed(folders)]
    return next(filter(None, errors), "")


def _try_remove(remove_entry: Callable[[str], object], path: str) -> str:
    """Call a function that removes an entry; return path and reason of an error, else ""."""
    try:
        remove_entry(path)
    except OSError as error:
        return _format_error(path, error)
    return ""


def _format_error(path: str, error: OSError) -> str:
    """Return `PATH: REASON` for the user; "" if the path does not exist."""
    return "" if isinstance(error, FileNotFoundError) else f"{path}: {error.strerror}"

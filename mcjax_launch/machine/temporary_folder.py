"""Private folders for temporary files: no other user can put anything in their place."""

from __future__ import annotations

import errno
import os

from . import own_paths

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from collections.abc import Callable

# Folders to try after TMPDIR. The last is small on some systems, but only its user can write to it.
_OTHERS = ("/tmp", "/var/tmp", f"/run/user/{os.geteuid()}")


class NoFolder(Exception):
    """Error: no temporary folder can be made on this host, or written to.

    Args:
        place: path of the folder that cannot be used.
        error: error of the system.

    """

    def __init__(self, place: str, error: OSError) -> None:
        super().__init__(f"cannot use {place}: {error.strerror}; set TMPDIR to another directory")


def make(prefix: str, first: str = "", is_fit: Callable[[str], bool] = bool) -> str:
    """Make a new folder (0700) in a folder whose entries no other user can rename; return its path.

    Args:
        prefix: first part of the folder's name.
        first: path of the folder to try first, instead of TMPDIR.
        is_fit: returns whether the path of a folder is fit for the purpose.

    Raises:
        NoFolder: the folder cannot be made anywhere.

    """
    errors: dict[str, OSError] = {}
    for base in (os.path.abspath(first or os.environ.get("TMPDIR") or _OTHERS[0]), *_OTHERS):
        if not is_fit(base):
            continue
        try:
            if exposed := own_paths.find_exposed_folder(base):
                raise PermissionError(errno.EACCES, own_paths.explain_exposure(exposed))
            folder = os.path.join(base, f"{prefix}{os.urandom(6).hex()}")
            os.mkdir(folder, 0o700)
        except OSError as error:
            errors.setdefault(base, error)
            continue
        return folder
    raise NoFolder(_OTHERS[0], errors[_OTHERS[0]])

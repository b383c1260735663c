"""The job's private folder on a host: sockets, staged files, and whatever ranks leave in it."""

from __future__ import annotations

import os

from ..wire.system import NEW_FILE

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable
    from io import FileIO

    from ..wire.messages import StageEntry


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


#: What stays for another run: the hook, as it has been streamed, and compiled programs.
KEPT = frozenset({"mcjax_launch", "compiled"})


def clear(folder: str) -> None:
    """Remove what a run has left in the folder; make it again if a cleaner of /tmp has taken it."""
    try:
        entries = list(os.scandir(folder))
    except FileNotFoundError:
        os.mkdir(folder, 0o700)
        return
    for entry in entries:
        if entry.name in KEPT:
            continue
        if entry.is_dir(follow_symlinks=False):
            remove(entry.path)
        else:
            _clear_away(entry, "")


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


# --- staged files, and the call of a function ---


class Staging:
    """Takes one entry after the other; the folder is made with the first file.

    Args:
        private: the job's private folder.

    Attributes:
        folder: of the files; "" if there are none.
        what: the last entry, in words.

    """

    def __init__(self, private: str) -> None:
        self.folder = ""
        self.what = ""
        self._private = private
        self._file: FileIO | None = None
        self._written_ns = 0  # that file

    def begin(self, entry: StageEntry) -> None:
        """A folder, a link, a copy of an earlier file, or a file whose content follows."""
        self.finish()
        if entry.kind == "private":
            self.what = f"{entry.target}, in {os.path.dirname(self._private)} (TMPDIR)"
            self._create(os.path.join(self._private, entry.path), entry)
            return
        # As Python gives paths below its working directory.
        self.folder = os.path.join(os.path.realpath(self._private), "stage")
        self.what = f"--sync: {entry.path}"
        path = os.path.join(self.folder, entry.path)
        os.makedirs(path if entry.kind == "folder" else os.path.dirname(path), exist_ok=True)
        if entry.kind == "link":
            os.symlink(entry.target, path)
        elif entry.kind == "copy":
            import shutil

            shutil.copyfile(os.path.join(self.folder, entry.copy_of), path)
            os.chmod(path, entry.mode)
            os.utime(path, ns=(entry.written_ns, entry.written_ns))
        elif entry.kind == "file":
            self._create(path, entry)

    def _create(self, path: str, entry: StageEntry) -> None:
        self._file = open(os.open(path, NEW_FILE, 0o600), "wb", buffering=0)  # noqa: SIM115, see finish
        os.chmod(path, entry.mode)
        self._written_ns = entry.written_ns

    def write(self, data: bytes) -> None:
        """More of the file's content; nothing happens after an error."""
        if self._file is None:
            return
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError:
            self._file.close()
            self._file = None
            raise

    def finish(self) -> None:
        """The last entry is complete."""
        if self._file is not None:
            os.utime(self._file.fileno(), ns=(self._written_ns, self._written_ns))
            self._file.close()
            self._file = None

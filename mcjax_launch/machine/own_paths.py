"""Opening files by a user's path, without following links or folders that another user has placed.

Every user can put a link into a folder such as /tmp, and the link may lead to files of the user who
runs the job. So a path is followed entry by entry, in the way of Linux's `protected_symlinks` and
`protected_regular`, which may be switched off and do not cover folders.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
_MOST_LINKS = 40


def open_file(path: str, flags: int) -> int:
    """Open a file for writing; create the file and its folders if they are missing.

    Args:
        path: path of the file, absolute or relative to the working directory.
        flags: flags of `os.open`, besides O_WRONLY and O_CREAT.

    Raises:
        OSError: the file cannot be opened; a PermissionError if another user has placed part of the
            path.

    """
    with _walk(path) as (walk, name):
        how = (flags & ~os.O_TRUNC) | os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
        how |= 0 if _is_proc(walk.folder) else os.O_NOFOLLOW
        fd = os.open(name, how, 0o666, dir_fd=walk.folder)
        try:
            walk.check(os.fstat(fd), name)  # it may have been put there just before
            if flags & os.O_TRUNC and stat.S_ISREG(os.fstat(fd).st_mode):
                os.ftruncate(fd, 0)
        except OSError:
            os.close(fd)
            raise
        return fd


def remove_file(path: str) -> None:
    """Remove a file, in a folder whose path no other user has placed.

    Raises:
        OSError: the file cannot be removed; a PermissionError if another user has placed part of
            the path.

    """
    with folder_of(path, make=False) as (folder, name):
        os.unlink(name, dir_fd=folder)


def check(path: str) -> None:
    """Check that no other user has placed a link, folder or file that is part of a path.

    Raises:
        OSError: the path cannot be followed; a PermissionError if another user has placed part of
            it.

    """
    with contextlib.suppress(FileNotFoundError), folder_of(path, make=False):
        pass


def make_folder(path: str) -> None:
    """Make a folder and its missing parents, unless it exists.

    Raises:
        OSError: the folder cannot be made; a PermissionError if another user has placed part of the
            path.

    """
    with folder_of(os.path.join(path, _make_name())):
        pass


def make_private_folder(path: str) -> None:
    """Make a folder and its missing parents, all with mode 0700, unless it exists.

    Raises:
        OSError: the folder cannot be made.

    """
    if not os.path.isdir(path):
        make_private_folder(os.path.dirname(path))
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)


def make_cache_folder(name: str, environ: Mapping[str, str]) -> str:
    """Return a folder of the user's cache, which only this user can open; make it if it is missing.

    Args:
        name: name of the folder.
        environ: environment variables of this process.

    Raises:
        OSError: there is none, or other users could reach it.

    """
    cache = environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = os.path.join(cache, "mcjax-launch", name)
    if not os.path.isabs(folder):
        raise OSError(f"the folder {folder} has no absolute path")
    make_own_folder(folder)
    return folder


def make_own_folder(folder: str) -> None:
    """Make a folder that only this user can open, in one that is too; check both if they exist.

    Raises:
        OSError: it cannot be made, or other users could reach it.

    """
    if exposed := find_exposed_folder(folder):
        raise OSError(explain_exposure(exposed))
    for place in (os.path.dirname(folder), folder):
        make_private_folder(place)
        if why := explain_open_folder(place):
            raise OSError(f"{place} {why}")


def explain_open_folder(folder: str) -> str:
    """Return the reason why a folder is not this user's alone; "" if it is.

    Raises:
        OSError: the folder does not exist.

    """
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode):
        return "is not a folder, but a link or a file"
    if found.st_uid != os.geteuid():
        return "belongs to another user"
    return f"is open to other users (chmod 700 {folder})" if found.st_mode & 0o077 else ""


def explain_distrust(folder: str) -> str:
    """Return the reason why code in a folder must not be run; "" if it may be run.

    A missing folder is made. Root trusts the folders of all users, because containers run as root
    on folders of any user.
    """
    try:
        with _walk(os.path.join(folder, _make_name())) as (walk, _):
            status, exposed = os.fstat(walk.folder), walk.exposed
    except OSError as error:
        return error.strerror or str(error)
    if status.st_mode & stat.S_IWOTH:
        return f"every user can write to it (chmod o-w {folder})"
    if exposed:
        return explain_exposure(exposed)
    if os.geteuid() not in (0, status.st_uid) and status.st_uid and not is_our_groups(status):
        return "it belongs to another user, so that user controls what is in it"
    return ""


def explain_distrusted_file(path: str) -> str:
    """Return the reason why what a file says must not be done; "" if it may be done.

    Both the file and its folder count, and those that a link leads to.
    """
    places = dict.fromkeys((os.path.abspath(path), os.path.realpath(path)))
    for folder in map(os.path.dirname, places):
        if why := explain_distrust(folder):
            return f"{folder}: {why}"
    try:
        status, folder_status = os.stat(path), os.stat(folder)
    except OSError as error:
        return f"{path}: {error.strerror}"
    if _is_exposed(status):
        return f"other users can write to it (chmod go-w {path})"
    if os.geteuid() not in (0, status.st_uid) and status.st_uid not in (0, folder_status.st_uid):
        return f"it belongs to {_format_user(status.st_uid)}"
    return ""


def find_exposed_folder(path: str) -> str:
    """Return the first folder on a path whose entries other users can rename; "" if there is none.

    They could put something of theirs in the place of whatever the path leads to, at any time.

    Args:
        path: path of a folder, which counts too; it may be missing.

    Raises:
        OSError: the path cannot be followed; a PermissionError if another user has placed part of
            it.

    """
    walk = _Walk()
    try:
        with contextlib.suppress(FileNotFoundError):
            walk.follow(os.path.join(os.path.abspath(path), _make_name()), make=False)
        return walk.exposed
    finally:
        os.close(walk.folder)


def explain_exposure(folder: str) -> str:
    """Return words for a folder that `find_exposed_folder` has found, with what to do about it."""
    return f"other users can rename what is in {folder} (chmod +t {folder})"


@contextlib.contextmanager
def folder_of(path: str, *, make: bool = True) -> Iterator[tuple[int, str]]:
    """Yield a descriptor of the folder that holds a file, and the file's name in it.

    Links are resolved, also if the file itself is a link. The descriptor is closed at the end.

    Args:
        path: path of the file, absolute or relative to the working directory.
        make: create missing folders.

    Raises:
        OSError: a folder cannot be opened; a PermissionError if another user has placed part of the
            path.

    """
    with _walk(path, make=make) as (walk, name):
        yield walk.folder, name


@contextlib.contextmanager
def _walk(path: str, *, make: bool = True) -> Iterator[tuple[_Walk, str]]:
    walk = _Walk()
    try:
        yield walk, walk.follow(os.path.abspath(path), make)
    finally:
        os.close(walk.folder)


class _Walk:
    """Walk along a path from the root, which checks each entry before following it.

    Attributes:
        folder: descriptor of the folder that the walk has reached.
        exposed: path of the first folder on the way whose entries other users can rename; "" if
            there is none.

    """

    def __init__(self) -> None:
        self.folder = os.open(os.sep, _FOLDER)
        self.exposed = ""
        self._place = os.sep
        self._is_foreign = (
            False  # the folder is another user's, and this user's group may write to it
        )

    def follow(self, path: str, make: bool) -> str:
        """Walk to the folder that holds a path's last entry; return the name of that entry.

        Args:
            path: path to follow.
            make: create missing folders.

        Raises:
            OSError: the path cannot be followed, or another user has placed part of it.

        """
        names, links = _split_path(path), 0
        while True:
            name = names.pop() if names else os.curdir
            entry = self._read_entry(name)
            is_link = entry is not None and stat.S_ISLNK(entry.st_mode)
            if is_link and not _is_proc(self.folder):
                links += 1
                if links > _MOST_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
                target = os.readlink(name, dir_fd=self.folder)
                if target.startswith(os.sep):
                    self._open(os.sep, os.sep)
                names += _split_path(target)
            elif not names:
                return name
            else:
                if entry is None and make:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(name, dir_fd=self.folder)
                self._enter(name, is_link)

    def _read_entry(self, name: str) -> os.stat_result | None:
        """Return the checked status of an entry in the folder; None if there is no such entry."""
        if name not in (os.curdir, os.pardir) and not self.exposed:
            self.exposed = self._place if _is_exposed(os.fstat(self.folder)) else ""
        try:
            entry = os.stat(name, dir_fd=self.folder, follow_symlinks=False)
        except FileNotFoundError:
            return None
        if name not in (os.curdir, os.pardir):
            self.check(entry, name)
        return entry

    def check(self, entry: os.stat_result, name: str) -> bool:
        """Check that no other user has placed an entry, except a user of a shared group.

        Returns:
            True if it is another user's, and trusted because this user's group shares it.

        Raises:
            PermissionError: another user has placed the entry, or may have.

        """
        folder = os.fstat(self.folder)
        is_open = bool(folder.st_mode & stat.S_IWOTH)
        trusted = {os.geteuid(), 0, *(() if self._is_foreign else (folder.st_uid,))}
        if not (is_open or self._is_foreign):
            return False
        if stat.S_ISREG(entry.st_mode) and entry.st_nlink > 1:
            path = os.path.join(self._place, name)
            text = f"{path} is a hard link, which another user may have made; give another path"
            raise PermissionError(errno.EACCES, text)
        if entry.st_uid in trusted:
            return False
        kind, is_groups = stat.S_IFMT(entry.st_mode), is_our_groups(entry)
        if is_groups and (kind == stat.S_IFDIR or (kind == stat.S_IFREG and not is_open)):
            return True
        what = {stat.S_IFLNK: "link", stat.S_IFDIR: "folder"}.get(kind, "file")
        path, users = os.path.join(self._place, name), "every user" if is_open else "other users"
        raise PermissionError(
            errno.EACCES,
            f"{path} is a {what} of {_format_user(entry.st_uid)} "
            f"in a folder that {users} can write to; give another path",
        )

    def _enter(self, name: str, is_kernels_link: bool) -> None:
        """Enter the folder `name`; check it once open, because it may have been replaced."""
        place = os.path.normpath(os.path.join(self._place, name))
        if is_kernels_link or name in (os.curdir, os.pardir):
            self._open(name, place)
            return
        fd = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=self.folder)
        try:
            is_foreign = self.check(os.fstat(fd), name)
        except OSError:
            os.close(fd)
            raise
        self._replace(fd, place)
        self._is_foreign = is_foreign

    def _open(self, name: str, place: str) -> None:
        self._replace(os.open(name, _FOLDER, dir_fd=self.folder), place)
        self._is_foreign = False

    def _replace(self, folder: int, place: str) -> None:
        os.close(self.folder)
        self.folder, self._place = folder, place


def _split_path(path: str) -> list[str]:
    """Return the names in a path in reverse order, without "" and "."."""
    return [name for name in reversed(path.split(os.sep)) if name not in ("", os.curdir)]


def _is_proc(folder: int) -> bool:
    """Return whether an open folder is in /proc, where links such as those in fd/ are no paths."""
    try:
        return sys.platform == "linux" and os.fstat(folder).st_dev == os.stat("/proc").st_dev
    except OSError:  # there is no /proc
        return False


def _make_name() -> str:
    """Return a name that does not exist."""
    return os.urandom(8).hex()


def _is_exposed(folder: os.stat_result) -> bool:
    """Return whether users besides the owner and the groups of this user can rename its entries."""
    if folder.st_mode & stat.S_ISVTX:
        return False
    by_group = folder.st_mode & stat.S_IWGRP and os.geteuid() and folder.st_gid
    return bool(folder.st_mode & stat.S_IWOTH or (by_group and not is_our_groups(folder)))


def is_our_groups(entry: os.stat_result) -> bool:
    """Return whether a group of this user may write to an entry, and other users may not."""
    shared = entry.st_mode & (stat.S_IWGRP | stat.S_IWOTH) == stat.S_IWGRP
    return shared and entry.st_gid in {os.getegid(), *os.getgroups()}


def _format_user(uid: int) -> str:
    """Return `user NAME` for messages; `user UID` if the user has no name."""
    try:
        import pwd

        return f"user {pwd.getpwuid(uid).pw_name}"
    except (ImportError, KeyError):
        return f"user {uid}"

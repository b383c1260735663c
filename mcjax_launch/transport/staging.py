"""Files and folders to send to the hosts' staging folders (--sync)."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

from mcjax_launch.errors import LaunchError
from mcjax_launch.wire.frames import encode_message, encode_raw
from mcjax_launch.wire.messages import StageEntry
from mcjax_launch.wire.value import Value

_LEFT_OUT = frozenset(("__pycache__", ".git"))
_PIECE = 1 << 16


class Entry(Value):
    """File, folder or link to be staged.

    Args:
        path: path below the staging folder.
        source: path of the original on this machine.
        kind: "file", "folder" or "link".

    """

    path: str
    source: str
    kind: str


class StagedContent:
    """Files to stage on every host.

    Args:
        paths: paths given with --sync.
        cwd: working directory of the launcher.

    Raises:
        LaunchError: a path does not exist or cannot be read.

    """

    def __init__(self, paths: tuple[str, ...], cwd: str) -> None:
        self._entries = list_entries(paths, cwd)

    def iterate_frames(self) -> Iterator[bytes]:
        """Yield the frames that stage everything on one host.

        Raises:
            LaunchError: a file has changed or disappeared.

        """
        yield from iterate_entry_frames(self._entries)


def list_entries(paths: tuple[str, ...], cwd: str) -> list[Entry]:
    """Return the files, folders and links at these paths, folders before their contents.

    A relative path stays the same below the staging folder, so that the same command works there.
    An absolute path, or a path that leads out of `cwd`, is staged under its last name.

    Raises:
        LaunchError: a path does not exist or cannot be read.

    """
    found: dict[str, Entry] = {}
    for path in paths:
        source = os.path.join(cwd, path)
        if not os.path.exists(source):
            raise LaunchError(f"--sync {path}: no such file or directory in {cwd}")
        if not os.path.isdir(source) and not os.path.isfile(source):
            raise LaunchError(f"--sync {path}: neither a file nor a directory")
        for entry in _walk(get_staged_path(path, cwd), source):
            if not os.access(entry.source, os.R_OK) and entry.kind != "link":
                raise LaunchError(f"--sync {path}: {entry.source} cannot be read")
            if entry.kind != "link" or entry.path not in found:
                found[entry.path] = entry
    # Links last, so that no file is ever written through a link.
    return sorted(found.values(), key=lambda entry: entry.kind == "link")


def get_staged_path(path: str, cwd: str) -> str:
    """Return the path below the staging folder for a path given with --sync; see `list_entries`."""
    place = os.path.normpath(path)
    if os.path.isabs(place) or place.startswith(".."):
        return os.path.basename(os.path.realpath(os.path.join(cwd, path)))
    return place


def _walk(place: str, source: str) -> Iterator[Entry]:
    """Yield the entry of a file; or those of a folder and of all its contents, at any depth.

    Raises:
        LaunchError: an entry cannot be examined: its path is too long, for example.

    """
    if not os.path.isdir(source):
        yield Entry(place, source, "file")
        return
    ahead = [(place, source)]
    while ahead:
        place, source = ahead.pop()
        yield Entry(place, source, "folder")
        for name in sorted(set(os.listdir(source)) - _LEFT_OUT):
            below, path = os.path.join(source, name), os.path.normpath(os.path.join(place, name))
            try:
                mode = os.lstat(below).st_mode
            except OSError as error:
                raise LaunchError(f"--sync: {below}: {error.strerror}") from None
            if stat.S_ISLNK(mode):
                yield Entry(path, below, "link")
            elif stat.S_ISDIR(mode):
                ahead.append((path, below))
            elif stat.S_ISREG(mode):
                yield Entry(path, below, "file")


def iterate_entry_frames(staged: list[Entry]) -> Iterator[bytes]:
    """Yield the frames that stage these entries on one host.

    Raises:
        LaunchError: a file has changed or disappeared.

    """
    for entry in staged:
        try:
            if entry.kind == "link":
                yield encode_message(
                    StageEntry(entry.path, "link", target=os.readlink(entry.source))
                )
            elif entry.kind == "folder":
                yield encode_message(StageEntry(entry.path, "folder"))
            else:
                found = os.stat(entry.source)
                mode, written_ns = found.st_mode & 0o777, found.st_mtime_ns
                yield encode_message(StageEntry(entry.path, "file", mode, written_ns=written_ns))
                with open(entry.source, "rb") as file:
                    while piece := file.read(_PIECE):
                        yield encode_raw("", 0, piece)
        except OSError as error:
            raise LaunchError(f"--sync: {entry.source}: {error.strerror}") from None

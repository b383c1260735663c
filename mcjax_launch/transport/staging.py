"""Files and folders to send to the hosts' staging folders (--sync)."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator

from mcjax_launch.errors import LaunchError
from mcjax_launch.wire import checksum
from mcjax_launch.wire.compression import compress
from mcjax_launch.wire.frames import encode_message, encode_raw
from mcjax_launch.wire.messages import Compressed, StageEntries, StageEntry
from mcjax_launch.wire.value import Value

_LEFT_OUT = frozenset(("__pycache__", ".git"))
_PIECE = 1 << 16
# Bytes of short files that stay in memory, so that all hosts get the same.
_MOST_HELD = 32 << 20
# Bytes; hosts do not keep longer files.
_MOST_KEPT = 256 << 20


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
        keeps: True if hosts may keep the files' contents, so that each is sent only once.
        note: prints a line for the user.

    Raises:
        LaunchError: a path does not exist or cannot be read.

    """

    def __init__(
        self,
        paths: tuple[str, ...],
        cwd: str,
        *,
        keeps: bool,
        note: Callable[[str], object],
    ) -> None:
        self._entries = list_entries(paths, cwd)
        self._keeps = keeps
        self._note = note
        self._listed: list[StageEntry] = []  # of the first entries, with their checksums
        self._packed: Compressed | None = None  # that list
        self._contents: dict[int, bytes] = {}  # of short files, by their numbers
        self._held = 0  # bytes of these
        self._changed: set[int] = set()

    def iterate_frames(self) -> Iterator[bytes]:
        """Yield the frames that name everything to one host, and stage all but files.

        A frame may be empty: reading long files must not keep the launcher from other work.

        Raises:
            LaunchError: a file has changed or disappeared.

        """
        while len(self._listed) < len(self._entries):
            self._list_next()
            yield b""
        self._packed = self._packed or compress(StageEntries(tuple(self._listed)))
        yield encode_message(self._packed)

    def iterate_lacking_frames(self, numbers: Iterable[int]) -> Iterator[bytes]:
        """Yield the frames with the contents that a host does not keep, by their numbers.

        Raises:
            LaunchError: a file has disappeared.

        """
        for number in sorted(set(numbers).intersection(range(len(self._listed)))):
            entry = self._listed[number]
            yield encode_message(entry)
            if number in self._contents:
                yield encode_raw("", 0, self._contents[number])
            else:
                yield from self._iterate_again(number, entry)

    def _list_next(self) -> None:
        """Read the next entry, and add it to the list with its checksum."""
        number = len(self._listed)
        entry, content = _read_entry(self._entries[number], self._keeps)
        if content and self._held + len(content) <= _MOST_HELD:
            self._contents[number] = content
            self._held += len(content)
        self._listed.append(entry)

    def _iterate_again(self, number: int, entry: StageEntry) -> Iterator[bytes]:
        """Yield the content of a file that has been read before; note if it has changed."""
        source = self._entries[number].source
        made = checksum.begin()
        for piece in _read_pieces(source, entry.size):
            if entry.checksum:
                made.update(piece)
            yield encode_raw("", 0, piece)
        if entry.checksum and made.hexdigest() != entry.checksum and number not in self._changed:
            self._changed.add(number)
            self._note(
                f"--sync: {entry.path} has changed while it was sent, so hosts may have different "
                "copies; start again when it is complete"
            )


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
        try:
            names = sorted(set(os.listdir(source)) - _LEFT_OUT)
        except OSError as error:  # it may not be read, or has just been removed
            raise LaunchError(f"--sync: {source}: {error.strerror}") from None
        for name in names:
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


def _read_entry(entry: Entry, keeps: bool) -> tuple[StageEntry, bytes]:
    """Return the description of an entry for hosts, and its content if that is short, else b"".

    Only what hosts may keep has a checksum.

    Raises:
        LaunchError: a file has disappeared.

    """
    try:
        if entry.kind == "link":
            return StageEntry(entry.path, "link", target=os.readlink(entry.source)), b""
        if entry.kind == "folder":
            return StageEntry(entry.path, "folder"), b""
        found = os.stat(entry.source)
    except OSError as error:
        raise LaunchError(f"--sync: {entry.source}: {error.strerror}") from None
    mode, written_ns = found.st_mode & 0o777, found.st_mtime_ns
    if found.st_size > _MOST_KEPT or not keeps:
        return StageEntry(entry.path, "file", mode, "", written_ns, "", found.st_size), b""
    made, size, content = checksum.begin(), 0, b""
    for piece in _read_pieces(entry.source, found.st_size):
        made.update(piece)
        size += len(piece)
        content = piece if size <= _PIECE else b""
    name = made.hexdigest()
    return StageEntry(entry.path, "file", mode, "", written_ns, name, size), content


def _read_pieces(path: str, most: int) -> Iterator[bytes]:
    """Yield the content of a file in pieces, at most `most` bytes of it.

    Raises:
        LaunchError: it cannot be read.

    """
    try:
        with open(path, "rb") as file:
            while piece := file.read(min(_PIECE, most)):
                most -= len(piece)
                yield piece
    except OSError as error:
        raise LaunchError(f"--sync: {path}: {error.strerror}") from None

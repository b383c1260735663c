"""Files of the launcher (--sync) in the job's private folder."""

from __future__ import annotations

import os

from ..machine.system import NEW_FILE, write_all

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Sequence
    from io import FileIO

    from ..wire.messages import StageEntry
    from .kept_files import KeptFiles

_READABLE_FILE = (NEW_FILE & ~os.O_WRONLY) | os.O_RDWR


class Staging:
    """Writer of staged files, folders and links, one at a time; makes the folder when needed.

    Ranks have copies of their own, whatever they write to them: neither another job nor what the
    host keeps is affected.

    Args:
        private: path of the job's private folder.

    Attributes:
        folder: path of the folder of the staged files; "" before the first entry.
        what: name of the latest entry, for messages to the user.

    """

    def __init__(self, private: str) -> None:
        self.folder = ""
        self.what = ""
        self._private = private
        self._file: FileIO | None = None
        self._entry: StageEntry | None = None  # that file's
        self._lacking: list[int] = []
        self._links: list[StageEntry] = []
        self._kept: KeptFiles | None = None

    def begin_all(self, entries: Sequence[StageEntry]) -> None:
        """Make all entries, except files whose content the host does not keep.

        Raises:
            OSError: an entry cannot be made.

        """
        if any(entry.checksum for entry in entries):
            from . import kept_files  # few jobs need it

            self._kept = kept_files.open_own(os.environ)
        for number, entry in enumerate(entries):
            if entry.kind == "link":  # last, so that no file is ever written through a link
                self._links.append(entry)
            elif not entry.size:
                self.begin(entry)
            elif not self._copy_kept(entry):
                self._lacking.append(number)
        self.finish()

    def _copy_kept(self, entry: StageEntry) -> bool:
        """Make a file from its kept content; return whether that was there."""
        if self._kept is None or not entry.checksum:
            return False
        self.begin(entry)
        assert self._file is not None
        if self._kept.copy(entry.checksum, entry.size, self._file):
            self._close()
            return True
        self._file.close()
        self._file = None
        os.unlink(self._get_path(entry))
        return False

    def complete(self) -> None:
        """Finish the latest entry; make the links, unless files are lacking.

        Raises:
            OSError: an entry cannot be made.

        """
        self.finish()
        if not self._lacking:
            links, self._links = self._links, []
            for link in links:
                self.begin(link)

    def pop_lacking(self) -> tuple[int, ...]:
        """Return the numbers of the files whose contents must be sent, and forget them."""
        lacking, self._lacking = tuple(self._lacking), []
        return lacking

    def begin(self, entry: StageEntry) -> None:
        """Make a folder or a link; or open a new file for `write`.

        Raises:
            OSError: the entry cannot be made.

        """
        self.finish()
        path = self._get_path(entry)
        self.what = f"--sync: {entry.path}"
        os.makedirs(path if entry.kind == "folder" else os.path.dirname(path), exist_ok=True)
        if entry.kind == "link":
            os.symlink(entry.target, path)
        elif entry.kind == "file":
            self._create(path, entry)

    def _get_path(self, entry: StageEntry) -> str:
        # With links resolved, as in Python's paths below its working directory.
        self.folder = self.folder or os.path.join(os.path.realpath(self._private), "stage")
        return os.path.join(self.folder, entry.path)

    def _create(self, path: str, entry: StageEntry) -> None:
        self._file = open(os.open(path, _READABLE_FILE, 0o600), "w+b", buffering=0)  # noqa: SIM115, see finish
        os.chmod(path, entry.mode)
        self._entry = entry

    def write(self, data: bytes) -> None:
        """Append data to the open file; do nothing after an error.

        Raises:
            OSError: the data cannot be written; the file is closed.

        """
        if self._file is None:
            return
        try:
            write_all(self._file, data)
        except OSError:
            self._file.close()
            self._file = None
            raise

    def finish(self) -> None:
        """Keep the file of the latest entry, if the host may, and close it."""
        if self._file is not None and self._entry is not None:
            if self._kept is not None and self._entry.checksum:
                self._kept.keep(self._entry.checksum, self._entry.size, self._file)
            self._close()

    def _close(self) -> None:
        """Close the file of the latest entry, and set its modification time."""
        assert self._file is not None and self._entry is not None
        written_ns = self._entry.written_ns
        os.utime(self._file.fileno(), ns=(written_ns, written_ns))
        self._file.close()
        self._file = None

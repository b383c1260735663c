"""Files that come from the launcher, in a folder of the job's own, and the call of a function."""

from __future__ import annotations

import os
import shutil

TYPE_CHECKING = False
if TYPE_CHECKING:
    from io import FileIO

    from ..wire.messages import StageEntry


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
        self.folder = os.path.join(self._private, "stage")
        self.what = f"--sync: {entry.path}"
        path = os.path.join(self.folder, entry.path)
        os.makedirs(path if entry.kind == "folder" else os.path.dirname(path), exist_ok=True)
        if entry.kind == "link":
            os.symlink(entry.target, path)
        elif entry.kind == "copy":
            shutil.copyfile(os.path.join(self.folder, entry.copy_of), path)
            os.chmod(path, entry.mode)
            os.utime(path, ns=(entry.written_ns, entry.written_ns))
        elif entry.kind == "file":
            self._create(path, entry)

    def _create(self, path: str, entry: StageEntry) -> None:
        # Never through a link, and never over what is there.
        how = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        self._file = open(os.open(path, how, 0o600), "wb", buffering=0)  # noqa: SIM115, see finish
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

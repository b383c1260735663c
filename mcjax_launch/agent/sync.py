"""Files that come from the launcher, in a folder of the job's own."""

from __future__ import annotations

import os
import shutil

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import BinaryIO

    from ..protocol.messages import StageEntry


class Staging:
    """Takes one entry after the other; the folder is made with the first."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.path = ""  # of the last entry
        self._file: BinaryIO | None = None
        self._written_ns = 0  # that file

    def begin(self, entry: StageEntry) -> None:
        """A folder, a link, a copy of an earlier file, or a file whose content follows."""
        self.finish()
        self.path = entry.path
        path = os.path.join(self.folder, self.path)
        os.makedirs(path if entry.kind == "folder" else os.path.dirname(path), exist_ok=True)
        if entry.kind == "link":
            os.symlink(entry.target, path)
        elif entry.kind == "copy":
            shutil.copyfile(os.path.join(self.folder, entry.copy_of), path)
            os.chmod(path, entry.mode)
            os.utime(path, ns=(entry.written_ns, entry.written_ns))
        elif entry.kind == "file":
            # Never through a link, and never over what is there.
            how = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            self._file = os.fdopen(os.open(path, how, 0o600), "wb")
            os.chmod(path, entry.mode)
            self._written_ns = entry.written_ns

    def write(self, data: bytes) -> None:
        """More of the file's content."""
        assert self._file is not None
        self._file.write(data)

    def finish(self) -> None:
        """The last entry is complete."""
        if self._file is not None:
            self._file.flush()
            os.utime(self._file.fileno(), ns=(self._written_ns, self._written_ns))
            self._file.close()
            self._file = None

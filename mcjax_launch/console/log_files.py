"""The tee at the head of the pipeline: all bytes go to the log files, the last are remembered."""

import errno
import os
import stat
from collections.abc import Callable, Sequence

from mcjax_launch.console.prefix import RankLabel
from mcjax_launch.errors import LaunchError
from mcjax_launch.protocol import frames

#: Bytes of a rank's stream that are kept for the summary.
TAIL_BYTES = 16_384

_NO_FILE = "a FIFO or socket, not a file"


class LogFiles:
    """Each rank's stdout and stderr in files of their own, byte for byte.

    Args:
        on_lost: called with what to tell the user when a file cannot be written any more.

    """

    def __init__(self, on_lost: Callable[[str], None]) -> None:
        self._on_lost = on_lost
        self._files: dict[tuple[int, int], int] = {}

    def open(self, labels: Sequence[RankLabel], *, append: bool) -> None:
        """Open the files of the ranks that have a folder, anew or to append to them.

        Raises:
            LaunchError: a file cannot be opened.

        """
        for label in labels:
            if label.folder is not None:
                for stream, end in ((frames.STDOUT, "out"), (frames.STDERR, "err")):
                    self._files[label.process_id, stream] = _open(label.log(end), append)

    def feed(self, rank: int, stream: int, data: bytes) -> None:
        """Write more bytes of a rank's stream, if it has a file."""
        file = self._files.get((rank, stream))
        if file is None:
            return
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(file, rest) :]
        except OSError as error:
            os.close(self._files.pop((rank, stream)))
            self._on_lost(
                f"rank {rank}: log file incomplete from here ({error.strerror}); the job continues"
            )

    def close(self) -> None:
        """All streams have ended."""
        for file in self._files.values():
            os.close(file)
        self._files.clear()


class Tails:
    """The last bytes of each rank's streams.

    Args:
        keep_stdout: whether to keep those of stdout too.

    """

    def __init__(self, keep_stdout: bool) -> None:
        self._keep_stdout = keep_stdout
        self._tails: dict[tuple[int, int], bytes] = {}

    def feed(self, rank: int, stream: int, data: bytes) -> None:
        """Keep the last of some more bytes of a rank's stream."""
        if stream == frames.STDERR or self._keep_stdout:
            tail = self._tails.get((rank, stream), b"") + data[-TAIL_BYTES:]
            self._tails[rank, stream] = tail[-TAIL_BYTES:]

    def of(self, rank: int) -> tuple[str, str]:
        """The last of a rank's stdout, where that is kept, and of its stderr."""
        out, err = (self._tails.get((rank, s), b"") for s in (frames.STDOUT, frames.STDERR))
        return out.decode("utf-8", "replace"), err.decode("utf-8", "replace")


def _open(path: str, append: bool) -> int:
    # Never wait for somebody to read a FIFO or a terminal.
    how = os.O_NONBLOCK | os.O_NOCTTY | (os.O_APPEND if append else os.O_TRUNC)
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        file = os.open(path, os.O_WRONLY | os.O_CREAT | how, 0o666)
    except OSError as error:
        why = _NO_FILE if error.errno == errno.ENXIO else error.strerror
        raise LaunchError(f"--log-dir: {path}: {why}") from None
    if stat.S_ISFIFO(os.fstat(file).st_mode):
        os.close(file)
        raise LaunchError(f"--log-dir: {path}: {_NO_FILE}")
    return file

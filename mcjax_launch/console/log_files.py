"""Log files of the ranks' output: the first stage of the pipeline writes all bytes to them."""

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Callable, Iterable, Sequence

from mcjax_launch.console.prefix import RankLabel
from mcjax_launch.errors import LaunchError
from mcjax_launch.machine import own_paths
from mcjax_launch.wire import frames

_NO_FILE = "a FIFO or socket, not a file"
#: Endings of the names of a rank's log files.
ENDS = {frames.STDOUT: "out", frames.STDERR: "err"}


class LogFiles:
    """Log files of each rank's stdout and stderr, byte for byte.

    Args:
        say: prints a line for the user if a file cannot be written, or if another job writes
            the same files.

    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._files: dict[tuple[int, int], int] = {}

    def open(self, labels: Sequence[RankLabel], *, append: bool) -> None:
        """Open the log files of ranks that have a folder; empty the files unless `append`.

        Raises:
            LaunchError: a file cannot be opened.

        """
        shared = ""  # the first file that another job writes
        for label in labels:
            if label.folder is not None:
                for stream, end in ENDS.items():
                    path = label.get_log_path(end)
                    self._files[label.process_id, stream] = file = _open(path)
                    if not _lock(file):
                        shared = shared or path
                    if not append and stat.S_ISREG(os.fstat(file).st_mode):
                        os.ftruncate(file, 0)
        if shared:
            gone = "" if append else "what it has written there is lost, and "
            self._say(
                f"--log-dir: another running job writes {shared} too: {gone}from now on the output "
                "of both is mixed; give each job its own folder, as with {job_id}"
            )

    def feed(self, rank: int, stream: int, data: bytes) -> None:
        """Write more bytes of a rank's stream to its log file, if it has one."""
        file = self._files.get((rank, stream))
        if file is None:
            return
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(file, rest) :]
        except OSError as error:
            os.close(self._files.pop((rank, stream)))
            self._say(
                f"rank {rank}: log file incomplete from here ({error.strerror}); the job continues"
            )

    def close(self) -> None:
        """Close all log files."""
        for file in self._files.values():
            os.close(file)
        self._files.clear()


def check_folder(log_dir: str) -> None:
    """Check that the folder of --log-dir exists or can probably be created.

    Args:
        log_dir: path that the user gave; may contain placeholders.

    Raises:
        LaunchError: the path is no folder, or the folder cannot be created.

    """
    folder = whole = os.path.abspath(log_dir)
    while "{" in folder or not os.path.lexists(folder):
        folder = os.path.dirname(folder)
    refuse_foreign(folder, f"--log-dir {log_dir}")
    if not os.path.isdir(folder):
        what = "" if folder == whole else f"{folder} is "
        raise LaunchError(f"--log-dir {log_dir}: {what}not a directory; give another name")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise LaunchError(f"--log-dir {log_dir}: {folder}: no permission to write there")


def refuse_foreign(folder: str, option: str) -> None:
    """Check that no link or folder of another user is on the path of a folder.

    Args:
        folder: absolute path of the folder.
        option: first words of the error message.

    Raises:
        LaunchError: a link or folder is another user's; the message names it and its owner.

    """
    try:
        own_paths.check(folder)
    except PermissionError as error:
        raise LaunchError(f"{option}: {error.strerror}") from None
    except OSError:  # other errors are reported when the folder is used
        return


def remove_leftovers(labels: Iterable[RankLabel], num_processes: int) -> None:
    """Remove log files that an earlier job with more ranks has left in the folders.

    Other programs use such names too, such as a batch system for its tasks. So only pairs of files
    are removed whose numbers follow this job's last rank without a gap, in a folder that already
    has the files of one of its ranks and is not the working directory. To be called before the
    files of this job are opened.

    Args:
        labels: labels of this job's ranks, with their folders.
        num_processes: number of ranks in the whole job.

    """
    one_of_each = {label.folder: label.process_id for label in labels if label.folder is not None}
    for folder, own in one_of_each.items():
        was_ours = all(map(_is_plain, _list_log_paths(folder, own)))
        if not was_ours or os.path.samefile(folder, os.curdir):
            continue
        rank = num_processes
        with contextlib.suppress(OSError):
            while all(map(_is_left, paths := _list_log_paths(folder, rank))):
                for path in paths:
                    own_paths.remove_file(path)
                rank += 1


def _list_log_paths(folder: str, rank: int) -> list[str]:
    return [RankLabel(rank, folder=folder).get_log_path(end) for end in ENDS.values()]


def _is_plain(path: str) -> bool:
    return os.path.isfile(path) and not os.path.islink(path)


def _is_left(path: str) -> bool:
    """Return whether a path is a log file that no running job writes."""
    if not _is_plain(path):
        return False
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        return _lock(file)
    finally:
        os.close(file)


def _lock(file: int) -> bool:
    """Lock a log file as long as it is open; return False if another job has locked it."""
    if stat.S_ISREG(os.fstat(file).st_mode):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:  # the file system has no locks
            pass
    return True


def _open(path: str) -> int:
    """Open a log file for appending; raise LaunchError if that fails."""
    # Never wait for a reader of a FIFO, or for a terminal.
    how = os.O_NONBLOCK | os.O_NOCTTY | os.O_APPEND
    try:
        file = own_paths.open_file(path, how)
    except OSError as error:
        why = _NO_FILE if error.errno == errno.ENXIO else error.strerror
        raise LaunchError(f"--log-dir: {path}: {why}") from None
    if stat.S_ISFIFO(os.fstat(file).st_mode):
        os.close(file)
        raise LaunchError(f"--log-dir: {path}: {_NO_FILE}")
    return file

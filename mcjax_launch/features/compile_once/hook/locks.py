"""Locks, one for each program, so that one rank of a host compiles it while other ranks wait."""

from __future__ import annotations

import contextlib
import fcntl
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# File mode of a lock for which no rank waits: its program cannot be shared.
_UNSHARED = 0o200
_LONGEST_RANK = 16


class Lock:
    """Lock of a program: held by this thread, or not needed.

    Attributes:
        is_shared: True if the program can be shared; if False, every rank compiles it.

    """

    def __init__(self, fd: int = -1) -> None:
        self.is_shared = fd >= 0
        self._fd = fd

    def give_up_sharing(self) -> None:
        """Mark the program as not shared: all ranks compile it for themselves, now and later."""
        self.is_shared = False
        with contextlib.suppress(OSError):
            os.fchmod(self._fd, _UNSHARED)  # works even if the disk is full


class Locks:
    """Locks in a folder on a local disk, where the kernel frees the locks of killed processes.

    Args:
        folder: the job's private folder.
        rank: this process's rank, as text.

    """

    def __init__(self, folder: str, rank: str) -> None:
        self._folder = folder
        self._rank = rank

    @contextlib.contextmanager
    def hold(self, key: str, waits: Callable[[int], object]) -> Iterator[Lock]:
        """Hold the lock of a program, once no other rank holds it.

        Args:
            key: key of the program.
            waits: called with the rank that holds the lock before waiting for it, and with -1 when
                the wait is over.

        """
        path = os.path.join(self._folder, key + ".lock")
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:  # the folder is gone, or its disk is full
            yield Lock()
            return
        lock = Lock(fd)
        try:
            try:
                self._acquire(lock, fd, waits)
            except OSError:  # a file system without locks
                lock.is_shared = False
            yield lock
        finally:
            with contextlib.suppress(OSError):
                fcntl.flock(fd, fcntl.LOCK_UN)  # a process forked meanwhile holds it too
            os.close(fd)

    def _acquire(self, lock: Lock, fd: int, waits: Callable[[int], object]) -> None:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if _is_unshared(fd):
                lock.is_shared = False
                return
            waits(self._read_holder(fd))
            try:
                fcntl.flock(fd, fcntl.LOCK_EX)
            finally:
                waits(-1)
        if _is_unshared(fd):
            lock.is_shared = False
            fcntl.flock(fd, fcntl.LOCK_UN)  # ranks that wait behind this rank need not wait either
            return
        with contextlib.suppress(OSError):
            os.pwrite(fd, self._rank.encode().ljust(_LONGEST_RANK), 0)

    def _read_holder(self, fd: int) -> int:
        """Return the other rank that has written its number into a lock; -1 if none has."""
        text = os.pread(fd, _LONGEST_RANK, 0).decode("ascii", "replace").strip()
        return int(text) if text.isdecimal() and text != self._rank else -1


def _is_unshared(fd: int) -> bool:
    return os.fstat(fd).st_mode & 0o777 == _UNSHARED

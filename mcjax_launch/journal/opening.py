"""Opening of the argument of `--events`: a file, a FIFO or a descriptor."""

import contextlib
import errno
import os
from collections.abc import Callable, Iterator

from mcjax_launch.errors import LaunchError
from mcjax_launch.machine import own_paths
from mcjax_launch.wire.exit_status import USAGE

#: Begins a place that is a descriptor.
DESCRIPTOR = "fd:"
_STANDARD = 2  # descriptors up to this one have another use
_FIRST_BYTES = b'{"event": '  # of a file of events


class EventsTarget:
    """The target of --events: a descriptor or FIFO that is opened at once, or a file.

    A file is opened, and so overwritten, when the run begins: a command line may still be wrong.

    Args:
        place: a path, or `fd:N` for an inherited descriptor.
        say: called with a line before the wait for a FIFO's reader.

    Raises:
        LaunchError: the place cannot be written to, or holds something other than events.

    """

    def __init__(self, place: str, say: Callable[[str], object]) -> None:
        self._place = place
        self._fd: int | None = None
        self._has_events = False
        if place.startswith(DESCRIPTOR):
            self._fd = parse_descriptor(place)
            return
        with _reporting(place):
            if os.path.exists(place) and not os.path.isfile(place):
                self._fd = _open_device(place, say)
            else:
                self._has_events = _check_file(place)

    def spares_file(self, exit_status: int) -> bool:
        """Return whether the file stays as it is, because the run could not begin.

        That is so if it holds an earlier run's events, or if the command line is wrong.
        """
        return self._fd is None and (self._has_events or exit_status == USAGE)

    def open(self) -> int:
        """Return a descriptor to write to; of a file, emptied first.

        Raises:
            LaunchError: the file cannot be written to.

        """
        if self._fd is None:
            with _reporting(self._place):
                self._fd = own_paths.open_file(self._place, os.O_TRUNC | os.O_NOCTTY)
        return self._fd


@contextlib.contextmanager
def _reporting(place: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise LaunchError(f"--events {place}: cannot be written: {error.strerror}") from None


def _check_file(path: str) -> bool:
    """Check that a file can be written and is missing, empty or has events; True if it has."""
    own_paths.check(path)
    if not os.path.exists(path):  # made when the run begins
        folder = os.path.dirname(os.path.abspath(path))
        while not os.path.lexists(folder):  # made too
            folder = os.path.dirname(folder)
        _check_access(folder)
        return False
    _check_access(path)
    with open(path, "rb") as file:
        first = file.read(len(_FIRST_BYTES))
    if first not in (b"", _FIRST_BYTES):
        raise LaunchError(
            f"--events {path}: holds something other than events, which would be lost: name "
            "another file, or remove it"
        )
    return bool(first)


def _check_access(path: str) -> None:
    how = os.W_OK | os.X_OK if os.path.isdir(path) else os.W_OK
    if not os.access(path, how):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def _open_device(path: str, say: Callable[[str], object]) -> int:
    """Open a FIFO or device for writing; wait until another process reads a FIFO."""
    try:
        fd = own_paths.open_file(path, os.O_NOCTTY | os.O_NONBLOCK)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        say(f"--events {path}: waiting for a reader of this FIFO")
        return own_paths.open_file(path, os.O_NOCTTY)
    os.set_blocking(fd, True)
    return fd


def parse_descriptor(place: str) -> int:
    """Return the number N of the descriptor `fd:N`, after checking it.

    Raises:
        LaunchError: no such descriptor is open for writing.

    """
    number = place.removeprefix(DESCRIPTOR)
    if not number.isdecimal() or int(number) <= _STANDARD:
        raise LaunchError(
            f"--events {place}: name a descriptor from 3 on, as in --events fd:3 3>events.jsonl"
        )
    fd = int(number)
    try:
        os.set_inheritable(fd, False)  # no rank is to hold it open
        os.write(fd, b"")
    except (OSError, OverflowError):
        raise LaunchError(f"--events {place}: no such descriptor is open for writing") from None
    return fd

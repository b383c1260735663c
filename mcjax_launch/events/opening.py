"""Opening of the argument of `--events`: a file, a FIFO or a descriptor."""

import errno
import os
from collections.abc import Callable

from mcjax_launch.errors import LaunchError
from mcjax_launch.kernel.wire import own_paths

#: Begins a place that is a descriptor.
DESCRIPTOR = "fd:"
_STANDARD = 2  # descriptors up to this one have another use


def open_events(place: str, say: Callable[[str], object] | None) -> int:
    """Return a descriptor to write events to; for a FIFO, wait until another process reads it.

    Args:
        place: a path, or `fd:N` for an inherited descriptor.
        say: called with a line before the wait; None to refuse a FIFO without a reader.

    Raises:
        LaunchError: the place cannot be written to.

    """
    if place.startswith(DESCRIPTOR):
        return parse_descriptor(place)
    flags = os.O_TRUNC | os.O_NOCTTY
    try:
        try:
            fd = own_paths.open_file(place, flags | os.O_NONBLOCK)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            if say is None:
                raise LaunchError(
                    f"--events {place}: no process reads this FIFO: with --detach, start its "
                    "reader first"
                ) from None
            say(f"--events {place}: waiting for a reader of this FIFO")
            return own_paths.open_file(place, flags)
        os.set_blocking(fd, True)
        return fd
    except OSError as error:
        raise LaunchError(f"--events {place}: cannot be written: {error.strerror}") from None


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

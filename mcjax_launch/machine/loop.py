"""Event loop: a single wait for descriptors, signals and a deadline, without polling or threads."""

from __future__ import annotations

import os
import select
import signal
import time

from . import system

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Protocol

    class Timer(Protocol):
        """Object with work to do at a deadline, a time of time.monotonic."""

        @property
        def deadline(self) -> float | None:
            """Time (time.monotonic) at which to call `expire`; None if no work is planned."""

        def expire(self, now: float) -> object:
            """Do the work that is due at `now`; do nothing before the deadline."""


# If the loop wakes this late, the process was suspended: with Ctrl-Z, or because the machine slept.
_LATE_S = 2.0
# The longest timeout that poll() takes (ms); a longer wait takes several turns.
_LONGEST_MS = (1 << 31) - 1

READ = select.POLLIN
WRITE = select.POLLOUT
#: Hang-up and error are always reported, also to a watch that asks for nothing else.
GONE = select.POLLERR | select.POLLHUP | select.POLLNVAL
#: For a watch of hang-ups only: macOS reports them only if asked to.
HANG_UP = select.POLLHUP


class Loop:
    """Event loop that calls a function when a descriptor is ready; `dispatch_ready` waits once."""

    def __init__(self) -> None:
        self._selector, self._ms = system.make_selector()
        self._calls: dict[int, Callable[[int], object]] = {}
        self._files: dict[int, int] = {}  # plain files are always ready, and epoll rejects them

    def watch(self, fd: int, events: int, call: Callable[[int], object]) -> None:
        """Call `call` with the ready events whenever `fd` is ready; replace an earlier watch.

        Call `forget` before closing `fd`: the watch would continue if another process has it open.
        """
        if fd in self._files:
            self._files[fd] = events
        elif fd in self._calls:
            self._selector.modify(fd, events)
        else:
            try:
                self._selector.register(fd, events)
            except PermissionError:
                self._files[fd] = events
        self._calls[fd] = call

    def forget(self, fd: int) -> None:
        """Stop watching `fd`; do nothing if it is not watched."""
        if self._calls.pop(fd, None) is not None and self._files.pop(fd, None) is None:
            self._selector.unregister(fd)

    def close(self) -> None:
        """Forget all descriptors and close the system's selector."""
        self._calls.clear()
        self._files.clear()
        if hasattr(self._selector, "close"):
            self._selector.close()

    def run_once(
        self, timers: Iterable[Timer], resumed: Callable[[float], object] | None = None
    ) -> None:
        """Call `dispatch_ready` with the earliest deadline of `timers`, then each timer's `expire`.

        Args:
            timers: timers with deadlines.
            resumed: called with the time, before the timers, if the loop woke so late that this
                process must have been suspended; it can correct deadlines.

        """
        timers = tuple(timers)
        due = find_earliest_deadline(timers)
        self.dispatch_ready(due)
        now = time.monotonic()
        if resumed is not None and due is not None and now > due + _LATE_S:
            resumed(now)
        for timer in timers:
            timer.expire(now)

    def dispatch_ready(self, deadline: float | None) -> None:
        """Wait until a descriptor is ready or `deadline` (time.monotonic); call its callbacks."""
        timeout: float | None = None
        if deadline is not None:
            # Rounded up: waking early would mean a busy wait until the deadline.
            timeout = max(0, int((deadline - time.monotonic()) * 1000) + 1)
            timeout = min(timeout, _LONGEST_MS) * self._ms
        files = [(fd, events) for fd, events in self._files.items() if events]
        # A wait interrupted by a signal ends at its deadline without checking once more.
        found = self._selector.poll(0 if files else timeout) or self._selector.poll(0)
        for fd, ready in found + files:
            call = self._calls.get(fd)
            if call is not None:  # an earlier callback may have called `forget`
                call(ready)


def find_earliest_deadline(timers: Iterable[Timer]) -> float | None:
    """Return the earliest deadline of several timers; None if none has a deadline."""
    return min((at for timer in timers if (at := timer.deadline) is not None), default=None)


class SignalPipe:
    """Pipe of signal numbers, one byte each, which a Loop can watch."""

    def __init__(self) -> None:
        self.fd, self._write = os.pipe()
        os.set_blocking(self.fd, False)
        os.set_blocking(self._write, False)

    def read(self) -> list[int]:
        """Return the numbers of the signals received since the last call."""
        try:
            return list(os.read(self.fd, 4096))
        except BlockingIOError:
            return []

    def put(self, signum: int) -> None:
        """Add a signal as if it had been received."""
        try:
            os.write(self._write, bytes([signum]))
        except BlockingIOError:  # thousands are unread already
            pass

    def close(self) -> None:
        """Close both ends of the pipe."""
        os.close(self.fd)
        os.close(self._write)


class Signals(SignalPipe):
    """Pipe of the signals that this process receives, instead of their default actions.

    The signals are unblocked, in case the parent process had blocked them.
    """

    def __init__(self, wanted: Iterable[int]) -> None:
        super().__init__()
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        wanted = tuple(wanted)
        for signum in wanted:
            signal.signal(signum, _ignore)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, wanted)


def _ignore(signum: int, frame: object) -> None:
    """Do nothing; Python writes a signal to the wakeup pipe only if it has a handler."""

"""One wait for everything: descriptors, signals and one deadline. No polling, no threads."""

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
        """A part that has something to do at some time, by time.monotonic's clock."""

        @property
        def deadline(self) -> float | None:
            """When to call `expire`; None while there is nothing to wait for."""

        def expire(self, now: float) -> object:
            """Act, if it is time."""


# Who is so late was stopped: with Ctrl-Z, or with the whole machine.
_LATE_S = 2.0
# What the system can count to: after so long there is one turn more.
_LONGEST_MS = (1 << 31) - 1

READ = select.POLLIN
WRITE = select.POLLOUT
#: Hang-up and error are always reported, also to a watch that asks for nothing else.
GONE = select.POLLERR | select.POLLHUP | select.POLLNVAL
#: For who wants to know of nothing else: macOS tells only if it is asked.
HANG_UP = select.POLLHUP


class Loop:
    """Calls back when a descriptor is ready; `turn` waits for the next such moment."""

    def __init__(self) -> None:
        self._selector, self._ms = system.selector()
        self._calls: dict[int, Callable[[int], object]] = {}
        self._files: dict[int, int] = {}  # plain files, always ready: epoll does not take them

    def watch(self, fd: int, events: int, call: Callable[[int], object]) -> None:
        """Call `call(ready events)` whenever `fd` is ready; replaces an earlier watch.

        Forget `fd` before it is closed: another process may have it too, and keep it open.
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
        """Stop watching `fd`; nothing happens if it is not watched."""
        if self._calls.pop(fd, None) is not None and self._files.pop(fd, None) is None:
            self._selector.unregister(fd)

    def close(self) -> None:
        """Let go of all that it watches, and of what the system keeps for it."""
        self._calls.clear()
        self._files.clear()
        if hasattr(self._selector, "close"):
            self._selector.close()

    def run_once(
        self, timers: Iterable[Timer], resumed: Callable[[float], object] | None = None
    ) -> None:
        """Wait until something is ready or due; call back, then every timer.

        Args:
            timers: with their deadlines.
            resumed: called before them where this process was stopped, as far as its being late
                tells: what is due now would have come to nothing, perhaps.

        """
        timers = tuple(timers)
        due = earliest(timers)
        self.turn(due)
        now = time.monotonic()
        if resumed is not None and due is not None and now > due + _LATE_S:
            resumed(now)
        for timer in timers:
            timer.expire(now)

    def turn(self, deadline: float | None) -> None:
        """Wait until something is ready or `deadline` (time.monotonic) has come, and call back."""
        timeout: float | None = None
        if deadline is not None:
            # Rounded up: waking a little early would mean a busy wait until it is time.
            timeout = max(0, int((deadline - time.monotonic()) * 1000) + 1)
            timeout = min(timeout, _LONGEST_MS) * self._ms
        files = [(fd, events) for fd, events in self._files.items() if events]
        # A wait that a signal interrupts gives up when its time is over, without another look.
        found = self._selector.poll(0 if files else timeout) or self._selector.poll(0)
        for fd, ready in found + files:
            call = self._calls.get(fd)
            if call is not None:  # an earlier callback may have forgotten it
                call(ready)


def earliest(timers: Iterable[Timer]) -> float | None:
    """The first deadline of several timers."""
    return min((at for timer in timers if (at := timer.deadline) is not None), default=None)


class SignalPipe:
    """Signals as bytes on a pipe that a Loop can watch, whoever writes them there."""

    def __init__(self) -> None:
        self.fd, self._write = os.pipe()
        os.set_blocking(self.fd, False)
        os.set_blocking(self._write, False)

    def read(self) -> list[int]:
        """The signals that have come since the last call."""
        try:
            return list(os.read(self.fd, 4096))
        except BlockingIOError:
            return []

    def put(self, signum: int) -> None:
        """Take this for a signal that has come; from any thread."""
        try:
            os.write(self._write, bytes([signum]))
        except BlockingIOError:  # thousands have come before
            pass

    def close(self) -> None:
        """Let go of the pipe."""
        os.close(self.fd)
        os.close(self._write)


class Signals(SignalPipe):
    """The process's own signals, of which handlers make such bytes, and do nothing else.

    Whatever the parent process has blocked: these come through from now on.
    """

    def __init__(self, wanted: Iterable[int]) -> None:
        super().__init__()
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        wanted = tuple(wanted)
        for signum in wanted:
            signal.signal(signum, _ignore)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, wanted)


def _ignore(signum: int, frame: object) -> None:
    """A handler has to exist for the wakeup descriptor to be written."""

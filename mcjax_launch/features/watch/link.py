"""Link of a run under --watch to the process that watches the files: its orders, and the start.

Each run has a launcher of its own, forked by the watching process (`watcher.py`), which alone
receives the user's signals. The next run is begun early: it prints nothing and starts no rank until
it is released.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mcjax_launch.journal.stop_reasons import StopReason, saved
from mcjax_launch.machine.loop import READ, Loop, SignalPipe, Signals
from mcjax_launch.wire import exit_status

if TYPE_CHECKING:
    from mcjax_launch.journal.sink import Target

_MOST_BYTES = 1 << 16


class JsonLines:
    """Objects, each a line of JSON, over a socket between a run and the watching process.

    Args:
        fd: descriptor of the socket.

    """

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._rest = b""

    def send(self, fields: dict[str, object]) -> None:
        """Send an object; do nothing if the other process has ended."""
        data = json.dumps(fields).encode() + b"\n"
        with contextlib.suppress(OSError):
            while data:
                data = data[os.write(self.fd, data) :]

    def receive(self) -> list[dict[str, Any]] | None:
        """Return the objects that have arrived whole; None if the other process has ended."""
        try:
            data = os.read(self.fd, _MOST_BYTES)
        except ConnectionResetError:  # it has ended, and has not read everything
            data = b""
        if not data:
            return None
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [json.loads(line) for line in lines]


class WatcherLink:
    """Link of a run's launcher to the watching process.

    Args:
        fd: socket to the watching process.
        is_held: True if the run must wait for its release.

    Attributes:
        signals: the watching process's signals, as it forwards them, and this process's SIGCHLD.
        pid: process id of the watching process, to which users send signals.
        say, note: print a line of the launcher about saves; `note` prints nothing with --quiet.
        on_save: called with the reason to end the run.

    """

    def __init__(self, fd: int, *, is_held: bool) -> None:
        self.signals = SignalPipe()
        self.pid = os.getppid()
        self.is_held = is_held
        self.say: Callable[[str], object] = _ignore
        self.note: Callable[[str], object] = _ignore
        self.on_save: Callable[[StopReason], object] = _ignore
        self._lines = JsonLines(fd)
        self._waiting: list[Callable[[], object]] = []
        self._children = Signals([signal.SIGCHLD])

    def attend(self, loop: Loop) -> None:
        """Carry out orders in this loop."""
        loop.watch(self._lines.fd, READ, lambda ready: self._read())
        loop.watch(self._children.fd, READ, lambda ready: self._forward_child_signals())

    def hold(self, outputs: tuple[Target, ...]) -> None:
        """Write nothing to these outputs before the release."""
        for output in outputs if self.is_held else ():
            output.hold(files=True)
            self._waiting.append(output.release)

    def call_after_release(self, call: Callable[[], object]) -> None:
        """Call a function once the run is released; at once if it is not held."""
        if self.is_held:
            self._waiting.append(call)
        else:
            call()

    def leave_if_held(self) -> None:
        """End this process if its run is dropped, or cannot be prepared: the next start says so."""
        if self.is_held:
            os._exit(0)

    def report(self, **fields: object) -> None:
        """Tell the watching process something about the run."""
        self._lines.send(fields)

    def _forward_child_signals(self) -> None:
        if signal.SIGCHLD in self._children.read():
            self.signals.put(signal.SIGCHLD)

    def _read(self) -> None:
        orders = self._lines.receive()
        if orders is None:  # the watching process was killed; agents end as after our own death
            os._exit(exit_status.compute_signal_status(signal.SIGKILL))
        for order in orders:
            self._obey(order)

    def _obey(self, order: dict[str, Any]) -> None:
        match order:
            case {"signal": number}:
                self.signals.put(number)
            case {"release": True}:
                self.is_held = False
                waiting, self._waiting = self._waiting, []
                for call in waiting:
                    call()
            case {"saved": changed}:
                stop = saved(changed)
                self.note(stop.message)
                self.on_save(stop)
            case {"say": line}:
                self.say(line)


def _ignore(_: object) -> None:
    """Do nothing: no job runs yet, or not any more."""

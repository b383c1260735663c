"""Link of a run under --watch to the process that watches the files: its orders, and the start.

Each run has a launcher of its own, forked by the watching process (`watcher.py`), which alone
receives the user's signals. The next run is begun early: it prints nothing and starts no rank until
it is released.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mcjax_launch.journal.stop_reasons import StopReason
from mcjax_launch.machine.loop import READ, SignalPipe, Signals
from mcjax_launch.wire import exit_status

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from mcjax_launch.launcher.front import Front


class WatcherLink:
    """Link of a run's launcher to the watching process.

    Args:
        end: connection to the watching process.
        is_held: True if the run must wait for its release.

    Attributes:
        signals: the watching process's signals, as it forwards them, and this process's SIGCHLD.
        pid: process id of the watching process, to which users send signals.
        say, note: print a line of the launcher about saves; `note` prints nothing with --quiet.
        on_save: called with the reason to end the run.

    """

    def __init__(self, end: Connection, *, is_held: bool) -> None:
        self.signals = SignalPipe()
        self.pid = os.getppid()
        self.is_held = is_held
        self.say: Callable[[str], object] = _ignore
        self.note: Callable[[str], object] = _ignore
        self.on_save: Callable[[StopReason], object] = _ignore
        self._end = end
        self._waiting: list[Callable[[], object]] = []
        # A terminal sends its signals to this process too, and they must not count twice.
        self._own_signals = Signals([signal.SIGCHLD])

    def attend(self, front: Front) -> None:
        """Carry out orders in this front's loop; before the release write none of its outputs."""
        front.loop.watch(self._end.fileno(), READ, lambda ready: self._obey())
        front.loop.watch(self._own_signals.fd, READ, lambda ready: self._read_own_signals())
        for output in front.open_outputs(lambda: None) if self.is_held else ():
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
        send(self._end, fields)

    def _read_own_signals(self) -> None:
        if signal.SIGCHLD in self._own_signals.read():
            self.signals.put(signal.SIGCHLD)

    def _obey(self) -> None:
        match receive(self._end):
            case None:  # the watching process was killed; agents end as after our own death
                os._exit(exit_status.compute_signal_status(signal.SIGKILL))
            case {"signal": number}:
                self.signals.put(number)
            case {"release": True}:
                self.is_held = False
                for call in self._waiting:
                    call()
            case {"saved": changed}:
                stop = saved(changed)
                self.note(stop.message)
                self.on_save(stop)
            case {"say": line}:
                self.say(line)


def saved(changed: str) -> StopReason:
    """Return the reason to end a job whose files have been saved.

    Args:
        changed: description of the saved files, to begin the message.

    """
    status = exit_status.compute_signal_status(signal.SIGTERM)
    return StopReason(f"{changed}: starting again", status, saved=True)


def send(end: Connection, fields: dict[str, Any]) -> None:
    """Send an order or a report; do nothing if the other process has ended."""
    try:
        end.send(fields)
    except OSError:
        pass


def receive(end: Connection) -> dict[str, Any] | None:
    """Return an order or a report that has arrived; None if the other process has ended."""
    try:
        return dict(end.recv())
    except (EOFError, OSError):
        return None


def _ignore(_: object) -> None:
    """Do nothing: no job runs yet, or not any more."""

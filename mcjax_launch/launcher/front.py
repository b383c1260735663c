"""The launcher's process: its signals and streams, and its terminal or client, if any."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from mcjax_launch.journal.events import NO_EVENTS
from mcjax_launch.journal.journal import Journal
from mcjax_launch.journal.sink import Target, make_standard_sinks
from mcjax_launch.journal.stop_reasons import interrupted
from mcjax_launch.machine.known_schedulers import find_scheduler
from mcjax_launch.machine.loop import READ, Loop, SignalPipe, Signals
from mcjax_launch.wire.exit_status import ENDING, FORWARDED

if TYPE_CHECKING:
    from mcjax_launch.journal.stop_reasons import StopReason
    from mcjax_launch.machine.loop import Timer


class Front:
    """The launcher's process: its signals, descriptors 1 and 2, and its terminal.

    Args:
        loop: the event loop.
        signals: the process's signals, as events.
        warnings: numbers of signals that announce a scheduler's end of the job; treated as SIGTERM.

    Attributes:
        events: sink of the runs' events.
        journal: facts of the job.
        watcher: link of a run under --watch to the watching process; None for any other job.
        outputs: targets of stdout and stderr, shared by all attempts; None before the first one.
        again: words on a second request to end the job.
        no_terminal: why the job can never have a terminal; "" if it may have one.

    """

    def __init__(
        self, loop: Loop, signals: SignalPipe, warnings: Collection[int] = frozenset()
    ) -> None:
        self.loop = loop
        self.signals = signals
        self.events, self.journal = NO_EVENTS, Journal()  # until `entry.run`
        self.watcher: Any = None  # of a feature, which the core does not name
        self.outputs: tuple[Target, Target] | None = None
        self.again, self.no_terminal = "press again to kill them now", ""
        self._warnings = warnings

    def read_signals(self) -> list[int]:
        """Return the signals received, with a scheduler's warning signals replaced by SIGTERM."""
        found = self.signals.read()
        return [signal.SIGTERM if signum in self._warnings else signum for signum in found]

    def wait(
        self, timers: Sequence[Timer], is_over: Callable[[], bool], ends: list[StopReason]
    ) -> StopReason | None:
        """Wait between two attempts; return the reason that ends the job meanwhile, None if none.

        Args:
            timers: timers to run.
            is_over: function called in each turn of the loop; returns whether the wait is over.
            ends: list of reasons to end the job; timers and signals append to it.

        """

        def read_signals(_: int) -> None:
            for signum in self.read_signals():
                if signum in ENDING:
                    ends.append(interrupted(signum))
                elif signum == signal.SIGTSTP:
                    self.suspend()

        self.loop.watch(self.signals.fd, READ, read_signals)
        if self.watcher is not None:
            self.watcher.on_save = ends.append
        while not ends and not is_over():
            self.loop.run_once(timers)
        return ends[0] if ends else None

    def open_outputs(self, on_room: Callable[[], None]) -> tuple[Target, Target]:
        """Return the targets of stdout and stderr; one target twice if both are the same file."""
        if self.outputs is None:
            self.outputs = make_standard_sinks(self.loop)
        for sink in self.outputs:
            sink.on_room = on_room
        return self.outputs

    def make_for(self, watcher: Any) -> Front:
        """Return a Front for a fork of this process that obeys the watching process."""
        front = Front(Loop(), watcher.signals, self._warnings)
        front.watcher = watcher
        watcher.attend(front)
        return front

    @property
    def is_held(self) -> bool:
        """True if --watch has begun this run early, and no save has released it."""
        return self.watcher is not None and self.watcher.is_held

    def call_after_release(self, call: Callable[[], object]) -> None:
        """Call a function once the run may begin: at once, unless --watch has begun it early."""
        if self.watcher is None:
            call()
        else:
            self.watcher.call_after_release(call)

    def leave_if_held(self) -> None:
        """End this process if --watch has begun a run early, and the run has ended before."""
        if self.watcher is not None:
            self.watcher.leave_if_held()

    def suspend(self) -> None:
        """Stop this process, and under --watch first the watching one."""
        for pid in dict.fromkeys((self.pid, os.getpid())):
            os.kill(pid, signal.SIGSTOP)

    @property
    def pid(self) -> int:
        """Process id to which users send signals."""
        return os.getpid() if self.watcher is None else self.watcher.pid

    @property
    def verbose_option(self) -> str:
        """Option that shows all output, in the user's notation: `verbose=True` or `-v`."""
        return "verbose=True" if self.events.has_client else "-v"

    def explain_no_terminal(self) -> str:
        """Return why a debugger cannot get a terminal; "" if there is one."""
        if self.events.has_client:
            return "the job was started by a program"
        return "" if os.isatty(0) else "stdin of mcjax-launch is not one"

    @property
    def shows_stacks(self) -> str:
        """Key or command that shows the stacks of all ranks; "" if there is none."""
        if self.events.has_client:
            return ""
        on_terminal = sys.stdin is not None and sys.stdin.isatty()
        return "Ctrl-\\" if on_terminal else f"kill -QUIT {self.pid}"


def make_front() -> Front:
    """Make the Front of this process, which handles its signals, except SIGHUP if it is ignored."""
    wanted = [*ENDING, *FORWARDED, signal.SIGQUIT, signal.SIGCONT, signal.SIGCHLD, signal.SIGWINCH]
    if sys.stderr is not None and sys.stderr.isatty():
        wanted.append(signal.SIGTSTP)  # to remove the status row first
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:  # nohup
        wanted.remove(signal.SIGHUP)
    scheduler = find_scheduler(os.environ)
    names = scheduler.warnings if scheduler else ()
    return Front(Loop(), Signals(wanted), [signal.Signals[name] for name in names])

"""What a launcher has of its process: signals, streams, perhaps a terminal or a client."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING

from mcjax_launch.events.events import NO_EVENTS
from mcjax_launch.events.sink import Target, standard
from mcjax_launch.kernel.wire.loop import READ, Loop, SignalPipe, Signals
from mcjax_launch.kernel.wire.schedulers import around
from mcjax_launch.kernel.wire.signals import ENDING, FORWARDED, PROFILE
from mcjax_launch.runs.stop_reasons import interrupted

if TYPE_CHECKING:
    from mcjax_launch.detached.visitors import Visitors
    from mcjax_launch.kernel.transport.client import Transport
    from mcjax_launch.kernel.transport.resting import RestingAgents
    from mcjax_launch.kernel.wire.loop import Timer
    from mcjax_launch.runs.stop_reasons import StopReason
    from mcjax_launch.saves.saves import Saves


def why_no_terminal() -> str:
    """Why there is none for a debugger; empty if there is one."""
    return "" if os.isatty(0) else "stdin of mcjax-launch is not one"


class Front:
    """The launcher's process: its signals, descriptors 1 and 2, and its terminal.

    Args:
        loop: to wait in.
        signals: as events.
        warnings: signals by which a scheduler says that it will end the job: as a SIGTERM.

    Attributes:
        events: of the runs, for a reader.
        saves: with --watch, of the files that are watched.
        transport: with --watch, starts the agents of every run.
        resting: the agents between two runs (--watch, --max-restarts); None where none stay.
        visitors: the terminals that return to a detached job; None for a job that has a terminal.
        again: says how the user interrupts the job a second time.

    """

    again = "press again to kill now"

    def __init__(
        self, loop: Loop, signals: SignalPipe, warnings: Collection[int] = frozenset()
    ) -> None:
        self.loop = loop
        self.signals = signals
        self.events = NO_EVENTS
        self.saves: Saves | None = None
        self.transport: Transport | None = None
        self.resting: RestingAgents | None = None
        self.visitors: Visitors | None = None
        self._warnings = warnings
        self._outputs: tuple[Target, Target] | None = None  # of all attempts

    def read_signals(self) -> list[int]:
        """The signals that have come, by what they mean."""
        found = self.signals.read()
        return [signal.SIGTERM if signum in self._warnings else signum for signum in found]

    def wait(
        self, timers: Iterable[Timer], is_over: Callable[[], bool], ends: list[StopReason]
    ) -> StopReason | None:
        """Wait between two runs, while agents rest; return what ends the wait early.

        Args:
            timers: besides those of the agents.
            is_over: called in each turn.
            ends: reasons to end the job, to which timers may add; a signal does.

        """

        def read_signals(_: int) -> None:
            for signum in self.read_signals():
                if signum in ENDING:
                    ends.append(interrupted(signum))
                elif signum == signal.SIGTSTP:
                    os.kill(os.getpid(), signal.SIGSTOP)
                elif signum == signal.SIGCHLD and self.resting is not None:
                    self.resting.reap()

        self.loop.watch(self.signals.fd, READ, read_signals)
        all_timers = [*timers, *([] if self.resting is None else [self.resting])]
        while not ends and not is_over():
            self.loop.run_once(all_timers)
        return ends[0] if ends else None

    def outputs(self, on_room: Callable[[], None]) -> tuple[Target, Target]:
        """Where the console's two streams go; both the same if they lead to the same file."""
        if self._outputs is None:
            self._outputs = standard(self.loop)
        for sink in self._outputs:
            sink.on_room = on_room
        return self._outputs

    def detach(self, job_id: str, output: Target, visitors: Visitors) -> None:
        """Run without a terminal: write to this output, and lend the terminals that return."""
        self._outputs, self.visitors = (output, output), visitors
        self.again = f"mcjax-launch --stop {job_id} again to kill now"

    @property
    def verbose_option(self) -> str:
        """What the user gives to see all output."""
        return "verbose=True" if self.events.has_client else "-v"

    def why_no_terminal(self) -> str:
        """Return why there is no terminal for a debugger; "" if there is one, or may be later."""
        if self.visitors is not None:
            return ""
        return "the job was started by a program" if self.events.has_client else why_no_terminal()

    @property
    def shows_stacks(self) -> str:
        """What shows the stacks of all ranks, in words; "" if nothing does."""
        if self.events.has_client:
            return ""
        on_terminal = sys.stdin is not None and sys.stdin.isatty()
        return "Ctrl-\\" if on_terminal else f"kill -QUIT {os.getpid()}"


def of_own_process() -> Front:
    """The launcher's, where the whole process is: all of its signals, but an ignored SIGHUP."""
    wanted = [*ENDING, *FORWARDED, signal.SIGQUIT, signal.SIGCONT, signal.SIGCHLD]
    wanted += [signal.SIGWINCH, PROFILE]
    if sys.stderr is not None and sys.stderr.isatty():
        wanted.append(signal.SIGTSTP)  # no row of ours may stay behind
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:  # nohup
        wanted.remove(signal.SIGHUP)
    scheduler = around(os.environ)
    names = scheduler.warnings if scheduler else ()
    return Front(Loop(), Signals(wanted), [signal.Signals[name] for name in names])

"""Terminal attached to a detached job: shows what the job's launcher has written, and follows."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

from mcjax_launch.console.console import Console
from mcjax_launch.console.prefix import RankLabel
from mcjax_launch.detached.connection import Connection
from mcjax_launch.detached.messages import (
    AskForStacks,
    DiskFull,
    MoreOutput,
    StatusText,
    ToVisitor,
    Visit,
)
from mcjax_launch.detached.output_files import OutputReader
from mcjax_launch.events.sink import make_standard_sinks
from mcjax_launch.machine.loop import READ, Loop, Signals
from mcjax_launch.options.options import OutputOptions
from mcjax_launch.wire.frames import STDOUT
from mcjax_launch.wire.signals import ENDING

# A terminal begins with the first of the last files that hold so many bytes.
_TAIL_BYTES = 1 << 16
# Number of the only stream of the display.
_STREAM = 0
#: What is said of a job whose output cannot be written.
DISK_FULL = "the disk is full: what the job prints is not kept; the job continues"
#: How a visit ends otherwise than by a signal: the launcher is gone, or nobody reads.
LAUNCHER_GONE, NOBODY_READS = 0, -1


class JobDisplay:
    """Display of a detached job on this terminal, until the job ends or the user leaves.

    Args:
        style: output options.
        folder: folder of the job.
        connection: connection to its launcher; None if the launcher has ended.

    """

    def __init__(self, style: OutputOptions, folder: str, connection: Connection | None) -> None:
        self._loop = Loop()
        self._signals = Signals(
            [*ENDING, signal.SIGQUIT, signal.SIGCONT, signal.SIGWINCH, signal.SIGTSTP]
        )
        self._targets = make_standard_sinks(self._loop)
        for target in self._targets:
            target.on_room = self._read_output
        self._end: int | None = None
        self._is_alone = connection is None
        # The launcher has added prefixes and left out lines already: all of it is one stream.
        style = style.copy_with(
            show=None, no_prefix=True, timestamps=False, collapse="never", verbose=True
        )
        self._status = style.status or "awaited"
        self.console = Console(style, self._targets, self._on_reader_loss, self._read_output)
        self.console.add_ranks([RankLabel(_STREAM)], append=True)
        self._reader = OutputReader(folder)
        self._connection = connection

    def run(self) -> int:
        """Show the job; return the signal that ended the visit, or e.g. LAUNCHER_GONE."""
        self._loop.watch(self._signals.fd, READ, lambda ready: self._read_signals())
        if self._connection is not None:
            self._loop.watch(self._connection.fd, READ, lambda ready: self._read_launcher())
        self._visit()
        if self._targets[0].is_terminal:  # a file or another program gets all that is kept
            self._show(self._read_tail(self._targets[0].count_rows() - 1))
        self._read_output()
        while self._end is None:
            self._loop.run_once((self.console,))
        return self._end

    def finish(self, say: Callable[[Console], None]) -> None:
        """Show the last lines, call `say` to print more, and restore the terminal."""
        self.console.finish_ranks()
        say(self.console)
        self._end = None
        while not self.console.empty and self._end is None:  # a second signal does not wait
            self._loop.run_once((self.console,))
        self._reader.close()
        if self._connection is not None:
            self._connection.close()

    def _visit(self) -> None:
        """Send the launcher this terminal's properties."""
        if self._connection is None:
            return
        line = self.console.status_line
        status = "" if line is None else self._status
        self._connection.send(Visit(status, self._targets[1].count_rows()))

    def _on_reader_loss(self, _: OSError | None) -> None:
        self._end = NOBODY_READS

    def _read_signals(self) -> None:
        for signum in self._signals.read():
            if signum in ENDING:
                self._end = signum
            elif signum == signal.SIGQUIT and self._connection is not None:
                self._connection.send(AskForStacks())
            elif signum == signal.SIGTSTP:
                self._suspend()
            elif signum == signal.SIGCONT:
                self.console.redraw_rows()
            elif signum == signal.SIGWINCH:
                self.console.redraw_status()
                self._visit()

    def _suspend(self) -> None:
        self.console.remove_rows()
        os.kill(os.getpid(), signal.SIGSTOP)

    def _read_launcher(self) -> None:
        assert self._connection is not None
        said = self._connection.receive()
        if said is None:
            self._loop.forget(self._connection.fd)
            self._on_launcher_loss()
            return
        for message in said:
            self._act(message)

    def _act(self, message: ToVisitor) -> None:
        match message:
            case MoreOutput():
                self._read_output()
            case DiskFull(True):
                self._read_output()
                self.console.say(DISK_FULL)
            case StatusText(text) if self.console.status_line is not None:
                self.console.status_line.say(text, time.monotonic())

    def _on_launcher_loss(self) -> None:
        self._is_alone = True
        self._read_output()

    def _show(self, output: bytes) -> None:
        if output:
            self.console.feed(_STREAM, STDOUT, output)

    def _read_tail(self, rows: int) -> bytes:
        """Return the last rows of what was written so far."""
        self._reader.skip_to_tail(_TAIL_BYTES)
        lines = b"".join(iter(self._reader.read, b"")).splitlines(keepends=True)
        return b"".join(lines[-rows:])

    def _read_output(self) -> None:
        """Show new output, as much as the terminal can take now."""
        while self.console.has_room:
            if not (output := self._reader.read()):
                if self._is_alone and self._end is None:
                    self._end = LAUNCHER_GONE
                return
            if self._reader.skipped:
                self._reader.skipped = False
                self.console.say("some output is not shown: this terminal is slower than the job")
            self._show(output)

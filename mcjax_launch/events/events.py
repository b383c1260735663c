"""Interface for a run's events; this implementation, for a run without a reader, drops them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from mcjax_launch.events.sink import Target

if TYPE_CHECKING:
    from mcjax_launch.diagnosis.view import Finding
    from mcjax_launch.kernel.wire.loop import Loop, SignalPipe


class Events:
    """Events of a run without a reader: every method does nothing.

    Attributes:
        is_read: there is a reader, and the last output of ranks is kept for its summary.
        has_client: the reader is the program that has started this launcher.
        has_room: the reader keeps up.
        is_empty: all events have been written.
        values: takes the frames of what a called function returns.
        rewrite: returns the whole lines of a rank that are to be reported in place of its own.

    """

    is_read = False
    has_client = False
    has_room = True
    is_empty = True
    rewrite: Callable[[bytes], bytes] | None = None

    def __init__(self) -> None:
        self.values = Target()

    def begin(self, loop: Loop, signals: SignalPipe) -> None:
        """Write in this loop from now on, unless that has begun."""

    def attend(
        self, on_room: Callable[[], None], on_gone: Callable[[OSError | None], None]
    ) -> None:
        """Call `on_room` when a slow reader has caught up, `on_gone` when nothing can be written.

        Args:
            on_room: of the launcher that reports events from now on.
            on_gone: called with the error, or None if the reader has left.

        """

    def began(self, job_id: str, program: Sequence[str], ranks: int, hosts: Sequence[str]) -> None:
        """Report that a run begins."""

    def restarted(self, rank: int | None, count: int, job_id: str, hosts: Sequence[str]) -> None:
        """Report that a rank, or the whole job (None), is started again for the `count`th time."""

    def started(self, rank: int, host: str, pid: int) -> None:
        """Report that a rank's process runs."""

    def joining(self, rank: int, host: str) -> None:
        """Report that a rank has called initialize()."""

    def joined(self, rank: int, host: str) -> None:
        """Report that initialize() has returned in a rank."""

    def failed(self, rank: int, host: str, message: str) -> None:
        """Report that a rank's program has failed."""

    def ended(self, rank: int, host: str, exit_status: int | None, message: str) -> None:
        """Report that a rank's process has ended."""

    def output(self, rank: int, stream: int, data: bytes) -> None:
        """Report what a rank has written to a stream (a number of `kernel.wire.frames`)."""

    def output_ended(self) -> None:
        """Report what is left of unfinished lines: all output of an attempt has come."""

    def note(self, text: str, level: str) -> None:
        """Report lines of the launcher; `level` as in `events.kinds`."""

    def screen(self, call: str, *values: object) -> None:
        """Keep what the console has been told besides, for terminals that return (`detached`)."""

    def finding(self, finding: Finding) -> None:
        """Report what the launcher has found."""

    def stacks(self, lines: Sequence[str]) -> None:
        """Report the stacks of all ranks, as lines."""

    def summary(self, fields: Mapping[str, object]) -> None:
        """Report the end of the run, with the fields of `events.kinds`."""

    def finish(self) -> None:
        """Wait until all is written, or a signal ends that."""


#: Of a run without a reader: there is nothing to keep in it.
NO_EVENTS = Events()

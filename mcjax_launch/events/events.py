"""Interface for reporting a run's events; this implementation drops them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from mcjax_launch.events.sink import Target

if TYPE_CHECKING:
    from mcjax_launch.diagnosis.view import Finding
    from mcjax_launch.events.calls import CallSource
    from mcjax_launch.machine.loop import Loop, SignalPipe


class Events:
    """Receiver of a run's events; this base class, for runs without a reader, does nothing.

    Attributes:
        is_read: True if there is a reader; ranks' last output is then kept for the summary.
        has_client: True if the reader is the program that started this launcher.
        has_room: True if the reader keeps up.
        is_written: True if all events have been written.
        is_empty: True if all events and values have been written.
        calls: source of the client's calls; None if the job makes none.
        values: target for the frames of what the calls return.
        rewrite: changes a rank's output before it is reported.

    """

    is_read = False
    has_client = False
    has_room = True
    is_written = True
    is_empty = True

    def __init__(self) -> None:
        self.calls: CallSource | None = None
        self.values = Target()
        self.rewrite: Callable[[bytes], bytes] = bytes

    def open(self) -> None:
        """Open the file for events, which is overwritten, because the run can begin."""

    def begin(self, loop: Loop, signals: SignalPipe) -> None:
        """Start to write, with this loop; do nothing if already started."""

    def attend(
        self, on_room: Callable[[], None], on_gone: Callable[[OSError | None], None]
    ) -> None:
        """Call `on_room` when a slow reader has caught up, `on_gone` when nothing can be written.

        Args:
            on_room: function of the launcher that reports events from now on.
            on_gone: called with the error, or None if the reader has left.

        """

    def report_begin(
        self, job_id: str, program: Sequence[str], ranks: int | None, hosts: Sequence[str]
    ) -> None:
        """Report that a run begins."""

    def report(self, kind: str, **fields: object) -> None:
        """Report an event without a method of its own; kind and fields as in `events.kinds`."""

    def report_output(self, rank: int, stream: int, data: bytes) -> None:
        """Report a rank's output; `stream` is a number of `wire.frames`."""

    def report_output_end(self) -> None:
        """Report unfinished lines, because all output of an attempt has been reported."""

    def report_finding(self, finding: Finding) -> None:
        """Report a finding of the launcher."""

    def report_failed_start(self, program: Sequence[str], exit_status: int, message: str) -> None:
        """Report the end of a run that could not begin, or that failed in the launcher.

        Args:
            program: PROGRAM and its arguments.
            exit_status: exit status of the launcher.
            message: the error.

        """

    def finish(self) -> None:
        """Wait until all events are written, or a signal ends the wait."""


#: Of a run without a reader: there is nothing to keep in it.
NO_EVENTS = Events()

"""Interface of the reader of the journal that writes events; this one writes none."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from mcjax_launch.journal.sink import Target

if TYPE_CHECKING:
    from mcjax_launch.journal.calls import CallSource
    from mcjax_launch.journal.state import RunState
    from mcjax_launch.machine.loop import Loop, SignalPipe


class Events:
    """Writer of a run's events; this base class, for runs without a reader, does nothing.

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
        self,
        state: RunState,
        on_room: Callable[[], None],
        on_gone: Callable[[OSError | None], None],
    ) -> None:
        """Take what events need of an attempt, which begins.

        Args:
            state: state of the attempt.
            on_room: called when a slow reader has caught up.
            on_gone: called when nothing can be written: with the error, or None if the reader has
                left.

        """

    def finish(self) -> None:
        """Wait until all events are written, or a signal ends the wait."""


#: Of a run without a reader: there is nothing to keep in it.
NO_EVENTS = Events()

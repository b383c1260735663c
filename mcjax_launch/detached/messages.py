"""Messages between a detached job's launcher and terminals that attach to it."""

from __future__ import annotations

from mcjax_launch.kernel.wire.codec import Malformed, Message

#: What a terminal may be told of how the job comes along: nothing, whom it awaits, or all that.
STATUSES = ("", "awaited", "line", "table")
_MOST_ROWS = 10_000


class ToDetached(Message):
    """Message from a terminal to the launcher."""


class Visit(ToDetached):
    """First message of a terminal, maybe sent with a descriptor of it for debuggers.

    Args:
        status: kind of status text that it wants; one of STATUSES.
        rows: number of its rows.
        term: kind of terminal, as in TERM.

    """

    status: str
    rows: int
    term: str

    def check(self) -> None:
        """Check the values; see `Nested`."""
        if self.status not in STATUSES or not 0 <= self.rows <= _MOST_ROWS:
            raise Malformed("no such status, or no such number of rows")


class Resized(ToDetached):
    """Report of the terminal's new number of rows."""

    rows: int


class ScreenHeld(ToDetached):
    """Answer to HoldScreen: the visitor writes nothing more to the terminal."""


class StopJob(ToDetached):
    """Request to end the job."""


class AskForStacks(ToDetached):
    """Request for the stacks of all ranks."""


class ToVisitor(Message):
    """Message from the launcher to a terminal."""


class MoreEvents(ToVisitor):
    """Notice that the files have new events."""


class DiskFull(ToVisitor):
    """Notice that events can no longer be written, or can be written again."""

    is_full: bool


class StatusText(ToVisitor):
    """New text of the status row, and of the rows below it."""

    text: str


class HoldScreen(ToVisitor):
    """Request to write all pending output, then nothing: a debugger gets the terminal."""


class ReleaseScreen(ToVisitor):
    """Notice that the debugger no longer uses the terminal."""


class Suspend(ToVisitor):
    """Request to suspend the visit: the user has typed Ctrl-Z in a debugger."""

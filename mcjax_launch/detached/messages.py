"""Messages between the launcher of a detached job and the terminals that return to it."""

from __future__ import annotations

from mcjax_launch.kernel.wire.codec import Malformed, Message

#: What a terminal may be told of how the job comes along: nothing, whom it awaits, or all that.
STATUSES = ("", "awaited", "line", "table")
_MOST_ROWS = 10_000


class ToDetached(Message):
    """Message of a terminal to the launcher."""


class Visit(ToDetached):
    """Return of a terminal; a descriptor of it may come along, for debuggers.

    Args:
        status: what it wants to be told; one of STATUSES.
        rows: that it has.
        term: its kind, as in TERM.

    """

    status: str
    rows: int
    term: str

    def check(self) -> None:
        """Check the values; see Nested."""
        if self.status not in STATUSES or not 0 <= self.rows <= _MOST_ROWS:
            raise Malformed("no such status, or no such number of rows")


class Resized(ToDetached):
    """Change of the terminal's size."""

    rows: int


class ScreenHeld(ToDetached):
    """Answer to HoldScreen: nothing more is written to the terminal."""


class StopJob(ToDetached):
    """Request to end the job."""


class AskForStacks(ToDetached):
    """Request for the stacks of all ranks."""


class ToVisitor(Message):
    """Message of the launcher to a terminal."""


class MoreEvents(ToVisitor):
    """News that there are more events in the files."""


class DiskFull(ToVisitor):
    """News that events can no longer be written, or can be written again."""

    is_full: bool


class StatusText(ToVisitor):
    """New text of the status row, and of the rows below it."""

    text: str


class HoldScreen(ToVisitor):
    """Request to write all that there is and then nothing more: a debugger gets the terminal."""


class ReleaseScreen(ToVisitor):
    """News that the terminal is free again."""


class Suspend(ToVisitor):
    """Request to suspend the visit: the user has typed Ctrl-Z in a debugger."""

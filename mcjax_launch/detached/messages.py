"""Messages between a detached job's launcher and terminals that attach to it."""

from __future__ import annotations

from mcjax_launch.wire.codec import Malformed, Message

#: What a terminal may be told of how the job comes along: nothing, whom it awaits, or all that.
STATUSES = ("", "awaited", "line", "table")
_MOST_ROWS = 10_000


class ToDetached(Message):
    """Message from a terminal to the launcher."""


class Visit(ToDetached):
    """First message of a terminal, and again when its size has changed.

    Args:
        status: kind of status text that it wants; one of STATUSES.
        rows: number of its rows.

    """

    status: str
    rows: int

    def check(self) -> None:
        """Check the values; see `Nested`."""
        if self.status not in STATUSES or not 0 <= self.rows <= _MOST_ROWS:
            raise Malformed("no such status, or no such number of rows")


class StopJob(ToDetached):
    """Request to end the job."""


class AskForStacks(ToDetached):
    """Request for the stacks of all ranks."""


class ToVisitor(Message):
    """Message from the launcher to a terminal."""


class MoreOutput(ToVisitor):
    """Notice that the files have new output."""


class DiskFull(ToVisitor):
    """Notice that output can no longer be kept, or can be kept again."""

    is_full: bool


class StatusText(ToVisitor):
    """New text of the status row, and of the rows below it."""

    text: str

"""What the launcher of a detached job and the terminals that return to it say to one another."""

from __future__ import annotations

from mcjax_launch.kernel.wire.codec import Malformed, Message

#: What a terminal may be told of how the job comes along: nothing, whom it awaits, or all that.
STATUSES = ("", "awaited", "line", "table")
_MOST_ROWS = 10_000


class ToDetached(Message):
    """What a terminal says to the launcher."""


class Visit(ToDetached):
    """A terminal returns; a descriptor of it may come along, for debuggers.

    Args:
        status: what it wants to be told; one of STATUSES.
        rows: that it has.
        term: its kind, as in TERM.

    """

    status: str
    rows: int
    term: str

    def check(self) -> None:
        """See Nested."""
        if self.status not in STATUSES or not 0 <= self.rows <= _MOST_ROWS:
            raise Malformed("no such status, or no such number of rows")


class Resized(ToDetached):
    """The terminal has another size."""

    rows: int


class ScreenHeld(ToDetached):
    """Nothing more is written to the terminal, as asked."""


class StopJob(ToDetached):
    """The user wants the job to end."""


class AskForStacks(ToDetached):
    """The user wants the stacks of all ranks."""


class ToVisitor(Message):
    """What the launcher says to a terminal."""


class MoreEvents(ToVisitor):
    """More has been written to the files with events."""


class DiskFull(ToVisitor):
    """What happens in the job can no longer be written, or can be again."""

    is_full: bool


class StatusText(ToVisitor):
    """What the status row says from now on, and what the rows below it do."""

    text: str


class HoldScreen(ToVisitor):
    """A debugger is about to get the terminal: write all that there is, and then nothing more."""


class ReleaseScreen(ToVisitor):
    """The terminal is free again."""


class Suspend(ToVisitor):
    """The user has typed Ctrl-Z for a debugger that had the terminal."""

"""Terminal of a visitor of a detached job, borrowed for debuggers in ranks."""

import os
from collections.abc import Callable

from mcjax_launch.detached.visitors import TerminalUser, Visitor, Visitors
from mcjax_launch.features.debugging.user_terminal import UserTerminal
from mcjax_launch.kernel.wire.loop import Loop

# Bytes of a debugger's output to keep for the next terminal.
_MOST_KEPT = 1 << 16


class BorrowedTerminal(TerminalUser):
    """Terminal borrowed from a visitor of a detached job, for a debugger.

    At most one terminal is borrowed at a time. If no visitor has a terminal, the debugger waits
    for a visitor that has.

    Args:
        visitors: the visitors of the job, some with terminals.
        loop: the event loop that reports keys.
        on_keys: called with what the user types.
        on_written: called when all output has been written.
        on_lent: called when a terminal has been borrowed.
        on_resized: called when the borrowed terminal has another size.

    Attributes:
        terminal: the borrowed terminal; None while there is none.
        term: the terminal's type, as in TERM.

    """

    def __init__(
        self,
        visitors: Visitors,
        loop: Loop,
        on_keys: Callable[[bytes], object],
        on_written: Callable[[], None],
        on_lent: Callable[[], None],
        on_resized: Callable[[], None],
    ) -> None:
        self.terminal: UserTerminal | None = None
        self.term = "dumb"
        self._visitors, self._loop = visitors, loop
        self._on_keys, self._on_written = on_keys, on_written
        self._on_lent, self._on_resized = on_lent, on_resized
        self._wanted = ""  # the place that needs a terminal; "" while none is wanted
        self._visitor: Visitor | None = None  # the visitor that lends, or was asked to lend
        self._kept = b""  # a debugger's output since the last terminal left
        visitors.terminal_user = self

    def request(self, what: str) -> bool:
        """Borrow a terminal, now or when a visitor with a terminal comes.

        Args:
            what: the place in a program that needs it, in words.

        Returns:
            True if a visitor lends its terminal or was asked to; False if none has a terminal.

        """
        self._wanted = what
        if self._visitor is None:
            self._ask()
        return self._visitor is not None

    def keep(self, data: bytes) -> None:
        """Keep a debugger's output while there is no terminal."""
        self._kept = (self._kept + data)[-_MOST_KEPT:]

    def pop_kept(self) -> bytes:
        """Remove and return the kept output, because there is a terminal now."""
        kept, self._kept = self._kept, b""
        return kept

    def _ask(self) -> None:
        """Ask the latest visitor for its terminal; show that the job waits until it agrees."""
        self._visitors.set_waits(self._wanted)
        self._visitor = next(iter(self._visitors.with_terminals), None)
        if self._visitor is not None:
            self._visitor.hold()

    def on_visitor_arrival(self, _: Visitor) -> None:
        """Ask a new visitor for its terminal, if one is wanted and none is borrowed."""
        if self._wanted and self.terminal is None:
            self._ask()

    def on_visitor_hold(self, visitor: Visitor) -> None:
        """Borrow a visitor's terminal, because the visitor has stopped using it."""
        if visitor is not self._visitor:
            visitor.release()
            return
        if self.terminal is not None:
            return
        self._visitors.set_waits("")
        self.term = visitor.term
        fd = os.dup(visitor.terminal)
        self.terminal = UserTerminal(self._loop, self._on_keys, self._on_written, fd)
        self._on_lent()

    def on_visitor_resize(self, visitor: Visitor) -> None:
        """Report that the borrowed terminal has another size."""
        if visitor is self._visitor:
            self._on_resized()

    def on_visitor_loss(self, visitor: Visitor) -> None:
        """Close the terminal of a visitor that is gone; ask another if one is still needed."""
        if visitor is self._visitor:
            self._drop()
            if self._wanted:
                self._ask()

    def suspend(self) -> None:
        """Suspend the visitor, as Ctrl-Z does: the user's shell gets the terminal."""
        if self._visitor is not None:
            visitor = self._visitor
            self._drop()
            self._visitors.set_waits(self._wanted)
            visitor.suspend()

    def restore(self) -> None:
        """Release the visitor's terminal, because no debugger needs it now."""
        self._wanted, self._kept = "", b""
        self._visitors.set_waits("")
        if self._visitor is not None:
            visitor = self._visitor
            self._drop()
            visitor.release()

    def _drop(self) -> None:
        terminal, self.terminal, self._visitor = self.terminal, None, None
        if terminal is not None:
            self._kept = terminal.row + self._kept
            terminal.close()

    def close(self) -> None:
        """Return the terminal to its visitor; borrow none any more."""
        self.restore()
        self._visitors.terminal_user = TerminalUser()

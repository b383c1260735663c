"""The terminal of a visitor of a detached job, borrowed for debuggers in ranks."""

import os
from collections.abc import Callable

from mcjax_launch.detached.visitors import Visitor, Visitors
from mcjax_launch.features.debugging.user_terminal import UserTerminal
from mcjax_launch.kernel.wire.loop import Loop

# So much of what a debugger writes is kept for the next terminal.
_MOST_KEPT = 1 << 16


class BorrowedTerminal:
    """Borrows one terminal at a time, and waits while there is none.

    Args:
        visitors: that may have terminals.
        loop: calls when a key is pressed.
        on_keys: is given what the user types.
        on_written: called when all output has been written.
        on_lent: called when a terminal has been borrowed.
        on_resized: called when it has another size.

    Attributes:
        terminal: that has been borrowed; None while there is none.
        term: its kind, as in TERM.

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
        self._wanted = ""  # for what: "" while none is wanted
        self._visitor: Visitor | None = None  # whose terminal is borrowed, or has been asked for
        self._kept = b""  # what a debugger has written since the last terminal left
        visitors.terminal_user = self

    def want(self, what: str) -> bool:
        """Borrow a terminal, now or when one returns.

        Args:
            what: for which place in a program, in words.

        Returns:
            Whether there is one that can be asked.

        """
        self._wanted = what
        if self._visitor is None:
            self._ask()
        return self._visitor is not None

    def keep(self, data: bytes) -> None:
        """Keep what a debugger writes while there is no terminal."""
        self._kept = (self._kept + data)[-_MOST_KEPT:]

    def take_kept(self) -> bytes:
        """Return what has been kept, for the terminal that there is now."""
        kept, self._kept = self._kept, b""
        return kept

    def _ask(self) -> None:
        """Ask the visitor that came last for its screen; remember that the job waits for one."""
        for visitor in self._visitors.with_terminals:
            self._visitor = visitor
            visitor.hold()
            return
        self._visitors.set_waits(self._wanted)

    def visitor_came(self, _: Visitor) -> None:
        """Ask for the screen of a visitor, if one is wanted."""
        if self._wanted and self._visitor is None:
            self._ask()

    def visitor_holds(self, visitor: Visitor) -> None:
        """Borrow the terminal of a visitor that has left its screen."""
        if visitor is not self._visitor or self.terminal is not None or not self._wanted:
            return
        self._visitors.set_waits("")
        self.term = visitor.term
        fd = os.dup(visitor.terminal)
        self.terminal = UserTerminal(self._loop, self._on_keys, self._on_written, fd)
        self._on_lent()

    def visitor_resized(self, visitor: Visitor) -> None:
        """The size of a visitor's terminal has changed."""
        if visitor is self._visitor:
            self._on_resized()

    def visitor_left(self, visitor: Visitor) -> None:
        """Do without the terminal of a visitor that is gone; another may have one."""
        if visitor is self._visitor:
            self._drop()
            if self._wanted:
                self._ask()

    def suspend(self) -> None:
        """Let the user's shell have the terminal; the visitor returns when it is continued."""
        if self._visitor is not None:
            visitor = self._visitor
            self._drop()
            self._visitors.set_waits(self._wanted)
            visitor.suspend()

    def give_back(self) -> None:
        """Give the terminal back: no debugger needs one now."""
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
        """Give it back for good."""
        self.give_back()
        self._visitors.terminal_user = None

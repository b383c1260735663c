"""Rows at the bottom of a terminal, below the output: when and how they are shown; pure."""

import math
from collections.abc import Callable, Sequence

# --- when they are shown ---
# With --status the rows are always there, at the end of the screen; see `PinnedRows`.

#: The row returns when ranks have printed nothing for this many seconds.
SILENCE_S = 1.0


class StatusLine:
    """Status line; disappears when a rank prints, and returns after silence. If live, it stays.

    Times are in time.monotonic's seconds.

    Args:
        draw: draws a text in place of the previous one; "" removes it.
        is_live: True to show the line all the time, not only while ranks are awaited.
        table_rows: returns the terminal's number of rows; None if no table of ranks is wanted.

    """

    def __init__(
        self,
        draw: Callable[[str], None],
        is_live: bool,
        table_rows: Callable[[], int] | None = None,
    ) -> None:
        self.is_live = is_live
        self.table_rows = table_rows
        self._draw = draw
        self._text = self._drawn = ""
        self._silent_until = 0.0

    def say(self, text: str, now: float) -> None:
        """Show a text from now on; "" removes the line."""
        self._text = text
        if not text or now >= self._silent_until:
            self._show(text)

    def hide_for_output(self, now: float) -> None:
        """Hide the line before a rank's output is shown, unless the line is live."""
        if not self.is_live:
            self._hide_until(now + SILENCE_S)

    def _hide_until(self, until: float) -> None:
        if self._silent_until < math.inf:
            self._silent_until = until
            self._show("")

    def hold(self) -> None:
        """Hide the line until `release` is called: a debugger has the screen."""
        self._hide_until(math.inf)

    def release(self, now: float) -> None:
        """End `hold`: the line returns after a second without output, at once if it is live."""
        self._silent_until = now + (0.0 if self.is_live else SILENCE_S)

    @property
    def deadline(self) -> float | None:
        """Time at which to show the row again, in time.monotonic's seconds.

        None if the row is shown or empty, or hidden until `release`.
        """
        waits = self._text and not self._drawn and self._silent_until < math.inf
        return self._silent_until if waits else None

    def expire(self, now: float) -> None:
        """Show the line again if ranks have been silent for long enough."""
        if self._text and now >= self._silent_until:
            self._show(self._text)

    def redraw(self) -> None:
        """Draw the line again, because the size of the terminal has changed."""
        if self._drawn:
            self._draw(self._drawn)

    def _show(self, text: str) -> None:
        if text != self._drawn:
            self._drawn = text
            self._draw(text)


# --- rows in, bytes to write out ---

#: Bytes to write, in pieces: a big chunk is copied only once, when prefixes are added.
Written = list[bytes | memoryview]

# A terminal that knows these shows the text between them only when it has all of it.
_HOLD, _SHOW = b"\x1b[?2026h", b"\x1b[?2026l"
# Without automatic wrapping a long row stays one row.
_NO_WRAP, _WRAP = b"\x1b[?7l", b"\x1b[?7h"
_SAVE, _RESTORE = b"\x1b7", b"\x1b8"
_PLAIN, _ERASE_BELOW, _ERASE_ROW = b"\x1b[0m", b"\x1b[J", b"\x1b[2K"
# The cursor is saved, because setting the rows that scroll moves it.
_UNSPLIT = _SAVE + b"\x1b[r" + _RESTORE + _ERASE_BELOW
_LEAST_ABOVE = 2  # rows that can scroll by themselves


class RedrawnRows:
    """Rows below the output, erased before more output and then drawn again below it.

    Args:
        is_in_foreground: returns whether this process may draw on the terminal. If not, shell
            prompts and the user's typing are where the rows would be.

    """

    def __init__(self, is_in_foreground: Callable[[], bool]) -> None:
        self._is_in_foreground = is_in_foreground
        self._drawn = 0

    def write(
        self, text: Sequence[bytes | memoryview], streams: Sequence[bytes], status: Sequence[bytes]
    ) -> Written:
        """Return the bytes that show whole lines, if any, and rows below them.

        Args:
            text: whole lines.
            streams: unfinished lines; without status rows, the cursor stays at the end of the last.
            status: status rows below these.

        """
        erase, rows, draw = self.clear(), [*streams, *status], b""
        if rows and self._is_in_foreground():
            self._drawn = len(rows)
            # A terminal that gets narrower wraps rows; the cursor stays at the start of this one.
            back = b"\r" if status else b""
            draw = _NO_WRAP + (_PLAIN + b"\n").join(rows) + _PLAIN + _WRAP + back
        if erase and draw:  # else no rows would be seen most of the time in a flood of output
            erase, draw = _HOLD + erase, draw + _SHOW
        return [erase, *text, draw]

    def clear(self) -> bytes:
        """Return the bytes that remove the rows from the terminal."""
        drawn, self._drawn = self._drawn, 0
        if not drawn or not self._is_in_foreground():
            return b""
        # Row by row: tmux copies a whole screen that is erased at once to its scrollback.
        return b"\r" + _ERASE_ROW + (b"\x1b[1A" + _ERASE_ROW) * (drawn - 1) + _ERASE_BELOW

    def forget(self) -> None:
        """Forget what was drawn: another process has used the terminal."""
        self._drawn = 0


class PinnedRows:
    """Rows at the bottom of the screen, above which the terminal itself scrolls the output.

    They are never erased, however much is written, and cost nothing while they stay the same. The
    cursor stays where the output continues, and all rows below it are ours.

    Args:
        is_in_foreground: see `RedrawnRows`.
        height: returns the terminal's number of rows.

    """

    def __init__(self, is_in_foreground: Callable[[], bool], height: Callable[[], int]) -> None:
        self._is_in_foreground = is_in_foreground
        self._height = height
        self._drawn: list[bytes] = []
        self._rows_above = 0  # of the part that scrolls

    def write(
        self, text: Sequence[bytes | memoryview], streams: Sequence[bytes], status: Sequence[bytes]
    ) -> Written:
        """Return the bytes that show whole lines above the rows; see `Redrawn.write`."""
        rows = [*streams, *status]
        above = self._height() - len(rows)
        if not rows or above < _LEAST_ABOVE or not self._is_in_foreground():
            return [self.clear(), *text]
        if (rows, above) == (self._drawn, self._rows_above):
            return [*text]
        split = b"" if above == self._rows_above else self._split(len(rows), above)
        self._drawn, self._rows_above = rows, above
        drawn = (b"\x1b[%d;1H%s%s" % (n, _ERASE_ROW, row) for n, row in enumerate(rows, above + 1))
        draw = _SAVE + _PLAIN + _NO_WRAP + _PLAIN.join(drawn) + _WRAP + _RESTORE
        return [*text, split + draw]

    def _split(self, rows: int, above: int) -> bytes:
        """Return the bytes that reserve rows at the bottom and let only the rest scroll."""
        room = b"\n" * rows + b"\x1b[%dA" % rows
        return _UNSPLIT + room + _SAVE + b"\x1b[1;%dr" % above + _RESTORE

    def clear(self) -> bytes:
        """Return the bytes that remove the rows and let the whole screen scroll again."""
        was_split = self._rows_above
        self.forget()
        return _UNSPLIT if was_split and self._is_in_foreground() else b""

    def forget(self) -> None:
        """Forget what was drawn: another process has used the terminal."""
        self._drawn, self._rows_above = [], 0

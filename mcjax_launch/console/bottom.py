"""The rows at the bottom of a terminal, below the output; pure: rows in, bytes to write out."""

from collections.abc import Callable, Sequence

#: What is to be written, in pieces: a big chunk is copied once, by the prefixing itself.
Written = list[bytes | memoryview]

# A terminal that knows these shows nothing of what is between them before it has it all.
_HOLD, _SHOW = b"\x1b[?2026h", b"\x1b[?2026l"
# Without automatic wrapping a long row stays one row.
_NO_WRAP, _WRAP = b"\x1b[?7l", b"\x1b[?7h"
_SAVE, _RESTORE = b"\x1b7", b"\x1b8"
_PLAIN, _ERASE_BELOW, _ERASE_ROW = b"\x1b[0m", b"\x1b[J", b"\x1b[2K"
# To set which rows scroll moves the cursor.
_UNSPLIT = _SAVE + b"\x1b[r" + _RESTORE + _ERASE_BELOW
_LEAST_ABOVE = 2  # rows that can scroll by themselves


class Redrawn:
    """Rows right below the output, which are erased before more of it, and drawn anew behind it.

    Args:
        in_foreground: whether the terminal is ours. While it is not, the shell's own lines and the
            user's typing are where the rows would be.

    """

    def __init__(self, in_foreground: Callable[[], bool]) -> None:
        self._in_foreground = in_foreground
        self._drawn = 0

    def write(
        self, text: Sequence[bytes | memoryview], streams: Sequence[bytes], status: Sequence[bytes]
    ) -> Written:
        """What to write for whole lines, or none, and these rows below them.

        Args:
            text: the lines.
            streams: unfinished lines, the cursor stays behind the last one.
            status: rows of our own below these.

        """
        erase, rows, draw = self.clear(), [*streams, *status], b""
        if rows and self._in_foreground():
            self._drawn = len(rows)
            # A terminal that gets narrower wraps rows, and the cursor stays at the start of this.
            back = b"\r" if status else b""
            draw = _NO_WRAP + (_PLAIN + b"\n").join(rows) + _PLAIN + _WRAP + back
        if erase and draw:  # without it a flood would show no rows most of the time
            erase, draw = _HOLD + erase, draw + _SHOW
        return [erase, *text, draw]

    def clear(self) -> bytes:
        """What removes the rows."""
        drawn, self._drawn = self._drawn, 0
        if not drawn or not self._in_foreground():
            return b""
        # Row by row: tmux keeps a whole screen that is erased at once for its scrollback.
        return b"\r" + _ERASE_ROW + (b"\x1b[1A" + _ERASE_ROW) * (drawn - 1) + _ERASE_BELOW

    def forget(self) -> None:
        """Others have had the terminal: the cursor has left the rows."""
        self._drawn = 0


class Pinned:
    """Rows at the end of the screen, above which the terminal scrolls the output by itself.

    They are never erased, however much is written, and cost nothing while they stay the same. The
    cursor stays where the output goes on, and all that is below it is ours.

    Args:
        in_foreground: see `Redrawn`.
        height: how many rows the terminal has.

    """

    def __init__(self, in_foreground: Callable[[], bool], height: Callable[[], int]) -> None:
        self._in_foreground = in_foreground
        self._height = height
        self._drawn: list[bytes] = []
        self._rows_above = 0  # of the part that scrolls

    def write(
        self, text: Sequence[bytes | memoryview], streams: Sequence[bytes], status: Sequence[bytes]
    ) -> Written:
        """What to write for whole lines, or none, and these rows; see `Redrawn.write`."""
        rows = [*streams, *status]
        above = self._height() - len(rows)
        if not rows or above < _LEAST_ABOVE or not self._in_foreground():
            return [self.clear(), *text]
        if (rows, above) == (self._drawn, self._rows_above):
            return [*text]
        split = b"" if above == self._rows_above else self._split(len(rows), above)
        self._drawn, self._rows_above = rows, above
        drawn = (b"\x1b[%d;1H%s%s" % (n, _ERASE_ROW, row) for n, row in enumerate(rows, above + 1))
        draw = _SAVE + _PLAIN + _NO_WRAP + _PLAIN.join(drawn) + _WRAP + _RESTORE
        return [*text, split + draw]

    def _split(self, rows: int, above: int) -> bytes:
        """What makes room for so many rows at the end, and has the others scroll by themselves."""
        room = b"\n" * rows + b"\x1b[%dA" % rows
        return _UNSPLIT + room + _SAVE + b"\x1b[1;%dr" % above + _RESTORE

    def clear(self) -> bytes:
        """What removes the rows, and has the whole screen scroll again."""
        was_split = self._rows_above
        self.forget()
        return _UNSPLIT if was_split and self._in_foreground() else b""

    def forget(self) -> None:
        """Others have had the terminal."""
        self._drawn, self._rows_above = [], 0

"""Turn pieces of many streams into prefixed lines; pure: pieces in, bytes to write out.

`Plain` is for files, pipes and logs: every byte of a rank appears, in lines that nothing else
interrupts; if a line returns to its start, its prefix is written again. `Live` is for a terminal:
unfinished lines (a prompt, a progress bar) stay at the bottom, one row per stream in order of rank,
with the job's status below them.
"""

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from mcjax_launch.console.bottom import PinnedRows, RedrawnRows, Written
from mcjax_launch.console.pieces import Fragment, Lines, Stream
from mcjax_launch.console.unfinished import LONGEST

if TYPE_CHECKING:
    from mcjax_launch.console.collapse import LineGroup

GOES_ON = b" [mcjax-launch: line continues]\n"
#: Seconds after which text added to an unfinished line is shown in a file,
GROWS_S = 0.25
#: on a terminal,
REDRAW_S = 0.1
#: and in a file in which other streams' lines came in between.
AGAIN_S = 2.0


class _StreamRow:
    """Unfinished line of a stream.

    Attributes:
        text: beginning of the line, as received.
        due: time at which to show added text; None if none was added.
        interrupted: True if lines of other streams were shown after it.
        is_long: True if it is shown in pieces, none of which is shown again.
        shown: number of bytes that have been shown.
        shown_from_start: True if the screen line that ends with them has its beginning.
        stamp: time of day when it was last shown.

    """

    __slots__ = (
        *("due", "interrupted", "is_long", "shown", "shown_from_start"),
        *("stamp", "stream", "text"),
    )

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.text = bytearray()
        self.due: float | None = None
        self.interrupted = self.is_long = False
        self.shown = 0
        self.shown_from_start = True
        self.stamp = b""


class _Renderer:
    """Base class of both renderers: unfinished lines, and the times at which to show them.

    Args:
        shared_prefix: returns the prefix for a line that several ranks have printed.
        stamp: returns the bytes before each prefix, such as the time of day.

    """

    _grows_s = GROWS_S

    def __init__(
        self,
        shared_prefix: Callable[[Sequence[int]], bytes] = lambda ranks: b"",
        stamp: Callable[[], bytes] = lambda: b"",
    ) -> None:
        self._shared_prefix = shared_prefix
        self._stamp = stamp
        self._rows: dict[Stream, _StreamRow] = {}

    def render_lines(self, lines: Lines) -> Written:
        """Return the bytes to write for whole lines of a stream."""
        raise NotImplementedError

    def render_fragment(self, fragment: Fragment, now: float) -> Written:
        """Return the bytes to write for part of a line: its start at once, further parts later."""
        row = self._rows.get(fragment.stream)
        begins = row is None
        if row is None:
            row = self._rows[fragment.stream] = _StreamRow(fragment.stream)
        row.text += fragment.text
        if fragment.ends:
            del self._rows[fragment.stream]
            return self._complete(row, is_cut=fragment.is_cut)
        if len(row.text) > LONGEST:
            return self._cut(row, now)
        if begins:
            return self._show(row)
        if row.due is None:
            row.due = now + (AGAIN_S if row.interrupted else self._grows_s)
        return []

    def _cut(self, row: _StreamRow, now: float) -> Written:
        """Return the bytes to write for a line that is too long; its rest becomes a new line."""
        out: Written = []
        row.is_long = True
        while len(row.text) > LONGEST:
            rest = row.text[LONGEST:]
            row.text[LONGEST:] = GOES_ON
            out += self._complete(row)
            row.text, row.interrupted, row.shown = rest, False, 0
        row.due = now + GROWS_S
        return out

    def render_groups(self, groups: "Sequence[LineGroup]") -> Written:
        """Return the bytes to write for lines that several ranks may have printed."""
        text = bytearray()
        for group in groups:
            alone = len(group.streams) == 1
            prefix = group.streams[0].prefix if alone else self._shared_prefix(group.ranks)
            text += self._render_line(group.text, group.stamp + prefix)
        return self.render_own(bytes(text)) if text else []

    def render_own(self, text: bytes) -> Written:
        """Return the bytes to write for whole lines that have prefixes, such as the launcher's."""
        raise NotImplementedError

    @property
    def deadline(self) -> float | None:
        """Time at which to show the next row, in time.monotonic's seconds; None if none waits."""
        return min((row.due for row in self._rows.values() if row.due is not None), default=None)

    def expire(self, now: float) -> Written:
        """Return the bytes to write for rows that are due."""
        due = [row for row in self._rows.values() if row.due is not None and row.due <= now]
        return [text for row in due for text in self._show(row)]

    def _show(self, row: _StreamRow) -> Written:
        raise NotImplementedError

    def _complete(self, row: _StreamRow, *, is_cut: bool = False) -> Written:
        """Return the bytes to write for a row that now ends with a newline; see `Fragment`."""
        raise NotImplementedError

    def render_again(self) -> Written:
        """Return the bytes to write after a suspension of the launcher."""
        return []

    def render_status(self, row: bytes) -> Written:  # noqa: ARG002  only a terminal has a status row
        """Return the bytes to write for new status rows; empty `row` for none."""
        return []

    def make_room(self) -> Written:
        """Return the bytes to write before another process uses the screen."""
        return []

    def pop_rows(self) -> list[Fragment]:
        """Remove and return the unfinished lines."""
        rows, self._rows = self._rows, {}
        return [Fragment(row.stream, bytes(row.text)) for row in rows.values()]

    def _render_line(self, line: bytes, prefix: bytes) -> bytes:
        """Return a whole line as shown, with its prefix and newline."""
        raise NotImplementedError


class Plain(_Renderer):
    """Renderer for files and pipes; see `_Renderer` for the arguments."""

    _open: _StreamRow | None = None  # the row that ends the output so far

    def render_lines(self, lines: Lines) -> Written:
        prefix = self._stamp() + lines.stream.prefix
        if b"\r" in lines.data or b"\r" in lines.head:
            text = _prefix_after_returns(lines.text, prefix)
            return [*self._close(), prefix, _add_prefixes(text, len(text), prefix)]
        return [*self._close(), prefix, lines.head, _add_prefixes(lines.data, lines.end, prefix)]

    def render_own(self, text: bytes) -> Written:
        return [*self._close(), text]

    def make_room(self) -> Written:
        return self._close()

    def _close(self) -> Written:
        """Return the bytes that end the unfinished line written last, so that another can begin."""
        if self._open is None:
            return []
        self._open.interrupted = True
        self._open = None
        return [b"\n"]

    def _show(self, row: _StreamRow) -> Written:
        row.due = None
        prefix = self._stamp() + row.stream.prefix
        end = len(row.text.rstrip(b"\r"))  # the effect of a return depends on what comes next
        if self._open is row:
            out: Written = [_prefix_after_returns(row.text[row.shown : end], prefix)]
        else:  # after an interruption what is new is enough until the line is complete
            last = row.text.rfind(b"\r", 0, end) + 1
            start = max(row.shown, last) if row.interrupted else 0
            if row.interrupted and start >= end:
                return []
            row.shown_from_start = start == 0
            text = _prefix_after_returns(row.text[start:end], prefix)
            out = [*self._close(), prefix, text]
        row.shown = end
        self._open = row
        return out

    def _complete(self, row: _StreamRow, *, is_cut: bool = False) -> Written:
        prefix = self._stamp() + row.stream.prefix
        is_cut |= row.is_long
        if self._open is row and (row.shown_from_start or is_cut):
            self._open = None
            return [_prefix_after_returns(row.text[row.shown :], prefix)]
        rest = row.text[row.shown :]
        if row.interrupted and rest == b"\n" and (is_cut or row.shown_from_start):
            return []  # another line has ended it
        text = rest if is_cut else row.text
        return [*self._close(), prefix, _prefix_after_returns(text, prefix)]

    def _render_line(self, line: bytes, prefix: bytes) -> bytes:
        return prefix + (_prefix_after_returns(line, prefix) if b"\r" in line else line) + b"\n"


class Live(_Renderer):
    """Renderer for a terminal.

    Args:
        height: returns the terminal's number of rows; called at each redraw.
        shared_prefix, stamp: see `_Renderer`.
        is_in_foreground: returns whether this process may draw on the terminal; see `RedrawnRows`.

    """

    _grows_s = REDRAW_S

    def __init__(
        self,
        height: Callable[[], int],
        shared_prefix: Callable[[Sequence[int]], bytes] = lambda ranks: b"",
        stamp: Callable[[], bytes] = lambda: b"",
        is_in_foreground: Callable[[], bool] = lambda: True,
    ) -> None:
        super().__init__(shared_prefix, stamp)
        self._height = height
        self._is_in_foreground = is_in_foreground
        self._bottom: RedrawnRows | PinnedRows = RedrawnRows(is_in_foreground)
        self._status: list[bytes] = []

    def pin_rows(self) -> None:
        """Fix the rows at the bottom of the screen; output scrolls above them."""
        self._bottom = PinnedRows(self._is_in_foreground, self._height)

    def render_lines(self, lines: Lines) -> Written:
        prefix = self._stamp() + lines.stream.prefix
        if b"\r" in lines.head or b"\r" in lines.data:
            return self.render_own(self._render_each_line(lines.text, prefix))
        text = _add_prefixes(lines.data, lines.end, prefix)
        return self._render_above(prefix, lines.head, text)

    def render_own(self, text: bytes) -> Written:
        return self._render_above(text)

    def _render_above(self, *text: bytes | memoryview) -> Written:
        """Return the bytes to write for whole lines, if any, above the present rows."""
        in_order = sorted(self._rows.values(), key=lambda row: (row.stream.rank, row.stream.number))
        shown = [
            row.stamp + row.stream.prefix + last
            for row in in_order
            if row.shown and (last := re.sub(_MOVES, b"", _extract_visible(row.text)))
        ]
        most = max(1, self._height() - 1 - max(1, len(self._status)))
        if len(shown) > most:
            shown[most - 1 :] = [b"(and %d more)" % (len(shown) - most + 1)]
        return self._bottom.write(text, shown, self._status)

    def _show(self, row: _StreamRow) -> Written:
        row.due = None
        row.stamp = self._stamp()
        row.shown = len(row.text)
        return self._render_above()

    def _complete(self, row: _StreamRow, *, is_cut: bool = False) -> Written:  # noqa: ARG002
        row.shown = 0
        return self.render_own(
            self._render_each_line(bytes(row.text), self._stamp() + row.stream.prefix)
        )

    def render_again(self) -> Written:
        self._bottom.forget()
        return self._render_above()

    def render_status(self, row: bytes) -> Written:
        self._status = row.split(b"\n") if row else []
        return self._render_above()

    def make_room(self) -> Written:
        return [self._bottom.clear()]

    def _render_line(self, line: bytes, prefix: bytes) -> bytes:
        return prefix + (_extract_visible(line) if b"\r" in line else line) + b"\n"

    def _render_each_line(self, text: bytes, prefix: bytes) -> bytes:
        return b"".join(self._render_line(line, prefix) for line in text[:-1].split(b"\n"))


# Escape sequences that would move the cursor out of a row; colours stay.
_MOVES = rb"\x1b\[[0-9;?]*[@-ln-~]|\x1b[^\[]|[\x00-\x08\x0b\x0c\x0e-\x1a]"


# Carriage returns in a line that goes on.
_RETURNS = rb"\r(?=[^\r\n])"


def _prefix_after_returns(text: "bytes | bytearray", prefix: bytes) -> bytes:
    """Return text with `prefix` after each carriage return that text of the line follows."""
    return re.sub(_RETURNS, lambda match: b"\r" + prefix, text) if prefix else bytes(text)


def _extract_visible(line: "bytes | bytearray") -> bytes:
    """Return the visible part of a line with carriage returns, such as a progress bar."""
    return bytes(line.rstrip(b"\r").rpartition(b"\r")[2]).rstrip()


def _add_prefixes(data: bytes, end: int, prefix: bytes) -> bytes | memoryview:
    """Return `data` up to `end`, where a line ends, with `prefix` after all newlines but the last.

    All of `data` is searched and copied at once, and the end is cut off without another copy.
    """
    if not prefix:
        return memoryview(data)[:end]
    lines = data.replace(b"\n", b"\n" + prefix)
    return memoryview(lines)[: len(lines) - (len(data) - end) - len(prefix)]

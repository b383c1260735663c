"""When the row at the bottom of a terminal, which says how the job comes along, is shown.

With --status it is always there, at the end of the screen; see `bottom.Pinned`.
"""

import math
from collections.abc import Callable

#: When ranks have printed it comes back after so many seconds without a line.
SILENCE_S = 1.0


class StatusLine:
    """A line that makes way when a rank prints, and comes back when it is silent; or stays.

    Times are in time.monotonic's seconds.

    Args:
        draw: draws it as it is from now on, "" for none.
        is_live: it stays, and is wanted all the time, not only while ranks are awaited.
        table_rows: says how many rows the terminal has, where a table of ranks is wanted too.

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
        """Show this text from now on; "" for none."""
        self._text = text
        if not text or now >= self._silent_until:
            self._show(text)

    def make_way(self, now: float) -> None:
        """Remove the row before output of a rank is shown, unless it stays below that."""
        if not self.is_live:
            self._hide_until(now + SILENCE_S)

    def _hide_until(self, until: float) -> None:
        if self._silent_until < math.inf:
            self._silent_until = until
            self._show("")

    def hold(self) -> None:
        """Remove the row until `release` is called: a debugger has the screen."""
        self._hide_until(math.inf)

    def release(self, now: float) -> None:
        """Show the row again when ranks are silent."""
        self._silent_until = now + (0.0 if self.is_live else SILENCE_S)

    @property
    def deadline(self) -> float | None:
        """When to show the row again."""
        waits = self._text and not self._drawn and self._silent_until < math.inf
        return self._silent_until if waits else None

    def expire(self, now: float) -> None:
        """Show the row again, if it is time."""
        if self._text and now >= self._silent_until:
            self._show(self._text)

    def redraw(self) -> None:
        """The terminal has another size."""
        if self._drawn:
            self._draw(self._drawn)

    def _show(self, text: str) -> None:
        if text != self._drawn:
            self._drawn = text
            self._draw(text)

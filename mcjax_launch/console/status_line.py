"""The row at the bottom of a terminal that says how the job comes along."""

import math
from collections.abc import Callable

#: When ranks have printed it comes back after so many seconds without a line.
SILENCE_S = 1.0


class StatusLine:
    """A line that makes way when a rank prints, and comes back when it is silent.

    Times are in time.monotonic's seconds.

    Args:
        draw: draws it as it is from now on, "" for none.
        is_live: it is wanted all the time, not only while ranks are awaited.

    """

    def __init__(self, draw: Callable[[str], None], is_live: bool) -> None:
        self.is_live = is_live
        self._draw = draw
        self._text = self._drawn = ""
        self._silent_until = 0.0

    def say(self, text: str, now: float) -> None:
        """Show this text from now on; "" for none."""
        self._text = text
        if not text or now >= self._silent_until:
            self._show(text)

    def make_way(self, now: float) -> None:
        """Remove the row before output of a rank is shown."""
        if self._silent_until < math.inf:
            self._silent_until = now + SILENCE_S
            self._show("")

    def hold(self) -> None:
        """Remove the row until `release` is called: a debugger has the screen."""
        self.make_way(math.inf)

    def release(self, now: float) -> None:
        """Show the row again when ranks are silent."""
        self._silent_until = now + SILENCE_S

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

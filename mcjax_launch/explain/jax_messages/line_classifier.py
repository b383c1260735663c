"""Classifier of a stream's lines: messages of JAX's C++, tracebacks that are noise, Gloo; pure."""

from collections import deque
from collections.abc import Callable, Sequence

from mcjax_launch.explain.jax_messages import cpp_blocks
from mcjax_launch.explain.jax_messages.cpp_blocks import BlockReader
from mcjax_launch.explain.jax_messages.gloo import is_gloo
from mcjax_launch.explain.jax_messages.noise import Noise
from mcjax_launch.explain.jax_messages.tracebacks import (
    CHAINS,
    Traceback,
    begins,
    find_file,
    find_tracebacks,
    is_exception,
    may_begin_in,
)
from mcjax_launch.journal.colours import remove_colours


class LineClassifier:
    """A classifier of the lines of one stream, given in order.

    Args:
        is_users: function that returns whether a file of a call is the user's own.

    Attributes:
        same: lines that another rank printed after an equal traceback, without colours.

    """

    def __init__(self, is_users: Callable[[str], bool] = lambda file: True) -> None:
        self._is_users = is_users
        self.same: frozenset[bytes] = frozenset()
        self._is_behind = False  # after a traceback that is the same in another rank
        self._blocks = BlockReader()
        self._expected: deque[tuple[Noise | None, int]] = deque()  # with the number of exceptions
        self._traceback: Noise | None = None  # the kind of the latest traceback
        self._more = 0  # exceptions chained to the present one
        self._in_users = False  # in lines of the user's code
        self._in_traceback = False  # in a traceback that is noise
        self._chained = False  # the next traceback is an effect of the latest
        self._gap = False  # empty lines are those between the two tracebacks

    def expect(self, text: bytes, kind: Callable[[Traceback], Noise | None]) -> None:
        """Announce the next lines; `kind` returns a traceback's kind of noise, None for none."""
        if may_begin_in(text):
            found = find_tracebacks(text, self._chained)
            self._expected = deque((kind(traceback), traceback.count) for traceback in found)

    def classify(self, line: bytes) -> Noise | None:
        """Return the next line's kind of noise, whatever its colours; None if it is not noise."""
        line = remove_colours(line)
        kind = self._blocks.classify(line)  # also in the middle of a traceback's line
        of_traceback = self._classify_by_traceback(line)
        if of_traceback is None and self._is_behind:
            self._is_behind = line in self.same
            return Noise.SAME if self._is_behind else kind
        self._is_behind = of_traceback is Noise.SAME
        return of_traceback or kind or (Noise.GLOO if is_gloo(line) else None)

    def _classify_by_traceback(self, line: bytes) -> Noise | None:
        """Return the kind of noise of the traceback that a line belongs to; None for no noise."""
        gap, self._gap = self._gap, line in CHAINS
        if self._gap:
            self._chained = True
            return self._traceback
        if begins(line):
            self._begin_traceback()
            return self._traceback if self._traceback is not Noise.INSIDE or self._more else None
        if self._in_traceback:
            return self._classify_inside(line)
        self._gap = gap and not line
        return self._traceback if self._gap else None

    def _begin_traceback(self) -> None:
        """Begin a traceback, or that of the next exception of a chain."""
        if not self._chained:
            self._traceback, self._more = self._expected.popleft() if self._expected else (None, 1)
        self._more -= 1
        self._chained = self._in_users = False
        self._in_traceback = self._traceback is not None

    def _classify_inside(self, line: bytes) -> Noise | None:
        """Return the kind of noise of a line inside a noisy traceback; None to show it."""
        if self._traceback is Noise.INSIDE and not self._more:
            return self._classify_inside_last(line)
        if line.startswith(b" "):
            return self._traceback
        if not is_exception(line):  # another thread's
            return None
        self._in_traceback = False
        self._gap = True
        if self._traceback is Noise.TRACEBACK:
            self._blocks.open(line)  # its message
        return self._traceback

    def _classify_inside_last(self, line: bytes) -> Noise | None:
        """Return INSIDE for a line of the interrupt itself that is not of the user's code."""
        if not line.startswith(b" "):
            self._in_traceback = not is_exception(line)
            return None
        file = find_file(line)
        if file is not None:
            self._in_users = self._is_users(file)
        return None if self._in_users else self._traceback

    def may_be_in(self, data: bytes) -> bool:
        """Return quickly whether noise may be in `data`."""
        inside = self._blocks.is_open or self._gap or self._in_traceback or self._is_behind
        begins_here = may_begin_in(data) or cpp_blocks.may_be_in(data)
        return inside or begins_here or any(mark in data for mark in CHAINS)


def without_noise(lines: Sequence[str]) -> tuple[list[str], int]:
    """Return a stream's lines without noise, and the number of lines removed."""
    listener = LineClassifier()
    kept = [line for line in lines if listener.classify(line.encode("utf-8", "replace")) is None]
    return kept, len(lines) - len(kept)

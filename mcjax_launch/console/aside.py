"""Store for output while a debugger has the screen, until its next prompt or its end; pure."""

from collections.abc import Callable
from itertools import chain

from mcjax_launch.console.pieces import Fragment, Lines, Piece, Stream
from mcjax_launch.console.renderers import Plain


class Aside:
    """Pieces of ranks' streams, and the launcher's lines, in order of arrival.

    Args:
        stamp: returns the bytes before each prefix, such as the time of day.

    Attributes:
        size: size of all entries, in bytes.

    """

    def __init__(self, stamp: Callable[[], bytes] = lambda: b"") -> None:
        self.size = 0
        self._plain = Plain(stamp=stamp)
        self._entries: list[Piece | bytes] = []

    def add(self, entry: Piece | bytes) -> None:
        """Store a piece, or whole lines of the launcher."""
        self._entries.append(entry)
        self.size += _count_bytes(entry)

    def pop_lines(self, rank: int) -> bytes:
        """Remove the whole lines of a rank, and return them with prefixes."""
        left: list[Piece | bytes] = []
        out: list[bytes | memoryview] = []
        begun: dict[Stream, list[Fragment]] = {}
        for entry in self._entries:
            if isinstance(entry, bytes) or entry.stream.rank != rank:
                left.append(entry)
            elif isinstance(entry, Lines):
                out += self._plain.render_lines(entry)
            else:
                begun.setdefault(entry.stream, []).append(entry)
                if entry.ends:
                    for part in begun.pop(entry.stream):
                        out += self._plain.render_fragment(part, 0.0)
        self._entries = [*left, *chain.from_iterable(begun.values())]
        self.size = sum(map(_count_bytes, self._entries))
        return b"".join(out)

    def pop_all(self) -> list[Piece | bytes]:
        """Remove and return all entries."""
        entries, self._entries, self.size = self._entries, [], 0
        return entries


def _count_bytes(entry: Piece | bytes) -> int:
    if isinstance(entry, Lines):
        return len(entry.head) + entry.end
    return len(entry if isinstance(entry, bytes) else entry.text)

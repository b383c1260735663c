"""Store for output while a debugger has the screen, until its next prompt or its end; pure."""

from mcjax_launch.console.pieces import Fragment, Lines, Piece, Stream
from mcjax_launch.console.renderers import Plain


class Aside:
    """Pieces of ranks' streams, and the launcher's lines, in order of arrival.

    Attributes:
        size: size of all entries, in bytes.

    """

    def __init__(self) -> None:
        self.size = 0
        self._entries: list[tuple[bytes, Piece | bytes]] = []

    def add(self, entry: Piece | bytes, stamp: bytes) -> None:
        """Store a piece, or whole lines of the launcher, with the time of day."""
        self._entries.append((stamp, entry))
        self.size += _count_bytes(entry)

    def pop_lines(self, rank: int) -> bytes:
        """Remove the whole lines of a rank, and return them with prefixes."""
        left: list[tuple[bytes, Piece | bytes]] = []
        out: list[bytes | memoryview] = []
        begun: dict[Stream, list[tuple[bytes, Fragment]]] = {}
        now = b""
        plain = Plain(stamp=lambda: now)
        for stamp, entry in self._entries:
            now = stamp
            if isinstance(entry, bytes) or entry.stream.rank != rank:
                left.append((stamp, entry))
            elif isinstance(entry, Lines):
                out += plain.render_lines(entry)
            else:
                begun.setdefault(entry.stream, []).append((stamp, entry))
                if entry.ends:
                    for begun_at, part in begun.pop(entry.stream):
                        now = begun_at
                        out += plain.render_fragment(part, 0.0)
        for parts in begun.values():
            left += parts
        self._entries = left
        self.size = sum(_count_bytes(entry) for _, entry in left)
        return b"".join(out)

    def pop_all(self) -> list[tuple[bytes, Piece | bytes]]:
        """Remove and return all entries, each with its time of day."""
        entries, self._entries, self.size = self._entries, [], 0
        return entries


def _count_bytes(entry: Piece | bytes) -> int:
    if isinstance(entry, Lines):
        return len(entry.head) + entry.end
    return len(entry if isinstance(entry, bytes) else entry.text)

"""The last bytes that each rank has printed, for its verdict, the summary and the record."""

import re
from collections.abc import Callable

from mcjax_launch.wire import frames

# Python colours its tracebacks with FORCE_COLOR, and on a terminal from Python 3.13 on.
_COLOURS = rb"\x1b\[[0-9;:]*m"


def remove_colours(text: bytes) -> bytes:
    """Return a text without the escape sequences that set colours."""
    return re.sub(_COLOURS, b"", text) if b"\x1b" in text else text


#: Bytes of a rank's stream that are kept for the summary.
TAIL_BYTES = 16_384
# The same for a job's record, per stream and for all ranks together.
_MOST_TAIL, _MOST_OF_ALL = 128 << 10, 16 << 20
# The part of a line that a terminal has overwritten: all up to its last carriage return.
_OVERWRITTEN = rb"(?<![^\n\r])[^\n\r]*+\r(?=[^\n])"


class Tails:
    """The last bytes of each rank's streams.

    Args:
        for_record: True to keep stdout too, and longer tails.
        rewrite: called with the bytes of a tail; returns the bytes to use; None for no change.

    """

    def __init__(
        self, for_record: bool = False, rewrite: Callable[[bytes], bytes] | None = None
    ) -> None:
        self._for_record = for_record
        self._rewrite: Callable[[bytes], bytes] = rewrite or bytes
        self._most = TAIL_BYTES
        self._tails: dict[tuple[int, int], bytearray] = {}

    def expect(self, ranks: int) -> None:
        """Set the length of tails for a number of ranks, to bound the total memory."""
        if self._for_record:
            self._most = max(TAIL_BYTES, min(_MOST_TAIL, _MOST_OF_ALL // (2 * ranks)))

    def feed(self, rank: int, stream: int, data: bytes) -> None:
        """Append bytes to the tail of a rank's stream; drop its oldest bytes if it is too long."""
        if stream == frames.STDOUT and not self._for_record:
            return
        tail = self._tails.get((rank, stream))
        if tail is None:
            tail = self._tails[rank, stream] = bytearray()
        tail += data[-self._most :]
        if len(tail) > self._most + self._most // 4:  # seldom, for many small pieces
            self._cut(tail)

    def _cut(self, tail: bytearray) -> None:
        if self._for_record and b"\r" in tail:
            tail[:] = re.sub(_OVERWRITTEN, b"", tail)
        del tail[: -self._most]

    def get_tails(self, rank: int) -> tuple[str, str]:
        """Return a rank's last stdout ("" if that is not kept) and stderr, without colours."""
        tails = (self._tails.get((rank, s), b"") for s in (frames.STDOUT, frames.STDERR))
        last = (self._rewrite(remove_colours(bytes(tail[-self._most :]))) for tail in tails)
        out, err = (tail.decode("utf-8", "replace") for tail in last)
        return out, err

    def forget(self, rank: int) -> None:
        """Drop the tails of a rank's streams."""
        for stream in (frames.STDOUT, frames.STDERR):
            self._tails.pop((rank, stream), None)

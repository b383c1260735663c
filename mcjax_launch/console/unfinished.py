"""Store for unfinished lines, until their ends arrive or a time limit passes; pure.

The noise filter and collapse need whole lines, but a prompt has no newline and has to be seen. So
the last bytes of a chunk wait a moment for the rest of their line. If it does not come, they are
passed on as a fragment, and so is the rest of the line, as soon as it comes.

Time in which the ranks' output is not read, because its reader is slow, does not count: the rest of
the line may have been written long ago.
"""

from collections.abc import Callable

from mcjax_launch.console.pieces import Fragment, Lines, Piece, Stream

#: An unfinished line is shown after this many seconds,
MOMENT_S = 0.25
#: or when it has more bytes than this.
LONGEST = 1 << 20
# After this many pauses a line does not wait longer: others were read in between.
_MOST_PAUSES = 20


class _Waiting:
    __slots__ = ("due", "patience_s", "pauses", "text")

    def __init__(self, now: float, patience_s: float) -> None:
        self.text = bytearray()
        self.patience_s = patience_s
        self.due = now + patience_s
        self.pauses = 0


class UnfinishedLines:
    """Converter of chunks into whole lines, and into fragments of lines that take too long.

    Args:
        patience_s: returns the extra seconds for which a line with this beginning may wait.

    """

    def __init__(self, patience_s: Callable[[bytes], float] = lambda begun: 0.0) -> None:
        self._patience_s = patience_s
        self._waiting: dict[Stream, _Waiting] = {}
        self._begun: set[Stream] = set()  # streams whose line has been passed on in part
        self._ended: set[Stream] = set()  # streams whose line was ended before its newline came
        self._is_paused = False

    def feed(self, stream: Stream, data: bytes, now: float) -> list[Piece]:
        """Add bytes of a stream; return the pieces that can be passed on now."""
        out: list[Piece] = []
        if self._ended and stream in self._ended:
            self._ended.discard(stream)
            data = data.removeprefix(b"\n")
        if stream in self._begun:
            if not (end := data.find(b"\n") + 1):
                return [Fragment(stream, data)]
            self._begun.discard(stream)
            out.append(Fragment(stream, data[:end]))
            data = data[end:]
        if end := data.rfind(b"\n") + 1:
            waiting = self._waiting.pop(stream, None)
            out.append(Lines(stream, bytes(waiting.text) if waiting else b"", data, end))
        if end < len(data):
            out += self._wait(stream, data[end:], now)
        return out

    def _wait(self, stream: Stream, begun: bytes, now: float) -> list[Piece]:
        waiting = self._waiting.get(stream)
        if waiting is None:
            waiting = _Waiting(now, MOMENT_S + self._patience_s(begun))
            self._waiting[stream] = waiting
        waiting.text += begun
        return [self._begin(stream)] if len(waiting.text) > LONGEST else []

    def _begin(self, stream: Stream) -> Fragment:
        self._begun.add(stream)
        return Fragment(stream, bytes(self._waiting.pop(stream).text))

    def pause(self) -> None:
        """Stop the clock, because the ranks' output is not being read."""
        self._is_paused = True

    def resume(self, now: float) -> None:
        """Start the clock again, with the full time for each waiting line, at most a few times."""
        if not self._is_paused:
            return
        self._is_paused = False
        for waiting in self._waiting.values():
            waiting.pauses += 1
            if waiting.pauses <= _MOST_PAUSES:
                waiting.due = now + waiting.patience_s

    @property
    def deadline(self) -> float | None:
        """Time at which to call `expire`, in time.monotonic's seconds; None if no line waits."""
        if self._is_paused:
            return None
        return min((waiting.due for waiting in self._waiting.values()), default=None)

    def expire(self, now: float) -> list[Piece]:
        """Return the lines that have waited long enough, each as a fragment."""
        if self._is_paused:
            return []
        due = [stream for stream, waiting in self._waiting.items() if waiting.due <= now]
        return [self._begin(stream) for stream in due]

    def end(self, rank: int) -> list[Piece]:
        """End a rank's unfinished lines with newlines; return their last pieces.

        Used before a debugger prints, and when a call is over. Later output begins new lines; if it
        begins with a newline, that newline is dropped.
        """
        out = self._end(
            {stream for stream in (*self._waiting, *self._begun) if stream.rank == rank}
        )
        self._ended.update(piece.stream for piece in out)
        return out

    def finish(self, *, ends_lines: bool = True) -> list[Piece]:
        """End the unfinished lines of all ranks, whose streams have ended.

        Args:
            ends_lines: False to return the lines as they are, without newlines.

        """
        if ends_lines:
            return self._end({*self._waiting, *self._begun})
        return [self._begin(stream) for stream in list(self._waiting)]

    def _end(self, streams: set[Stream]) -> list[Piece]:
        out: list[Piece] = [
            Lines(stream, bytes(self._waiting.pop(stream).text), b"\n", 1)
            for stream in list(self._waiting)
            if stream in streams
        ]
        out += [Fragment(stream, b"\n", is_cut=True) for stream in self._begun & streams]
        self._begun -= streams
        return out

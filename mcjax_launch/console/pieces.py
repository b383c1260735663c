"""Pieces of a rank's stream, as the stages of the pipeline pass them on; values.

They are not subclasses of `Value`, which takes longer to make: there is one piece for every chunk
and every line.
"""

from collections.abc import Callable


class _Piece:
    """A piece that equals any other with the same content."""

    __slots__: tuple[str, ...] = ()

    def _content(self) -> tuple[object, ...]:
        return tuple(getattr(self, name) for name in self.__slots__)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._content() == other._content()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}{self._content()}"


class Stream:
    """A stream of a rank: its stdout or its stderr.

    Args:
        rank: its number.
        number: frames.STDOUT or frames.STDERR.
        prefix: of its lines on the console.

    """

    __slots__ = ("number", "prefix", "rank")

    def __init__(self, rank: int, number: int, prefix: bytes = b"") -> None:
        self.rank = rank
        self.number = number
        self.prefix = prefix

    def __repr__(self) -> str:
        return f"Stream({self.rank}, {self.number}, {self.prefix!r})"


class Lines(_Piece):
    """Whole lines: `head`, then `data` up to `end`, which is just after a newline.

    In this form a big chunk passes through the pipeline without being copied.
    """

    __slots__ = ("stream", "head", "data", "end")  # noqa: RUF023  as the arguments

    def __init__(self, stream: Stream, head: bytes, data: bytes, end: int) -> None:
        self.stream = stream
        self.head = head
        self.data = data
        self.end = end

    @property
    def text(self) -> bytes:
        """Bytes of the lines, with the last newline."""
        whole = self.data if self.end == len(self.data) else self.data[: self.end]
        return self.head + whole if self.head else whole


class Fragment(_Piece):
    """Part of a line that could not wait for its end; the last part has the newline.

    Once a line has begun like this, all of it has to be shown.
    """

    __slots__ = ("stream", "text")

    def __init__(self, stream: Stream, text: bytes) -> None:
        self.stream = stream
        self.text = text

    @property
    def ends(self) -> bool:
        """True if it completes the line."""
        return self.text.endswith(b"\n")


Piece = Lines | Fragment


def rewritten(piece: Piece, rewrite: Callable[[bytes], bytes]) -> Piece:
    """Return the piece with another text."""
    if isinstance(piece, Lines):
        return whole_lines(piece.stream, rewrite(piece.text))
    return Fragment(piece.stream, rewrite(piece.text))


def whole_lines(stream: Stream, text: bytes) -> Lines:
    """Return whole lines from bytes that end with a newline."""
    return Lines(stream, b"", text, len(text))

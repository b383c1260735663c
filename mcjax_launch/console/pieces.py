"""What flows from stage to stage: pieces of a rank's stream; values."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class Stream:
    """One stream of one rank.

    Args:
        rank: whose it is.
        number: frames.STDOUT or frames.STDERR.
        prefix: of its lines on the console.

    """

    rank: int
    number: int
    prefix: bytes = b""


@dataclass(frozen=True, slots=True)
class Lines:
    """Whole lines: `head`, then `data` up to `end`, which is just behind a newline.

    In this shape a big chunk gets through the pipeline without being copied.
    """

    stream: Stream
    head: bytes
    data: bytes
    end: int

    @property
    def text(self) -> bytes:
        """All of it, with the last newline."""
        whole = self.data if self.end == len(self.data) else self.data[: self.end]
        return self.head + whole if self.head else whole


@dataclass(frozen=True, slots=True)
class Part:
    """Part of a line that could not wait for its end; with the last part comes the newline.

    Once a line has begun so, all of it has to be shown.
    """

    stream: Stream
    text: bytes

    @property
    def ends(self) -> bool:
        """Whether the line is complete with it."""
        return self.text.endswith(b"\n")


Piece = Lines | Part


def whole_lines(stream: Stream, text: bytes) -> Lines:
    """Whole lines from bytes that end with a newline."""
    return Lines(stream, b"", text, len(text))

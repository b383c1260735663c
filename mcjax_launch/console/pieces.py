"""Pieces of a rank's stream, passed from stage to stage of the pipeline.

They are not subclasses of `Value`, which takes longer to make: there is one piece for every chunk
and every line.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from mcjax_launch.journal.rank_run import Verdict
    from mcjax_launch.wire.hook_messages import Failed


class Stream:
    """Stream of a rank: stdout or stderr.

    Args:
        rank: number of the rank.
        number: frames.STDOUT or frames.STDERR.
        prefix: prefix of its lines on the console.

    """

    __slots__ = ("number", "prefix", "rank")

    def __init__(self, rank: int, number: int, prefix: bytes = b"") -> None:
        self.rank = rank
        self.number = number
        self.prefix = prefix

    def __repr__(self) -> str:
        return f"Stream({self.rank}, {self.number}, {self.prefix!r})"


class Lines(NamedTuple):
    """Whole lines: `head`, then `data` up to `end`, which is just after a newline.

    So a big chunk passes through the pipeline without a copy.
    """

    stream: Stream
    head: bytes
    data: bytes
    end: int

    @property
    def text(self) -> bytes:
        """Bytes of the lines, with the last newline."""
        whole = self.data if self.end == len(self.data) else self.data[: self.end]
        return self.head + whole if self.head else whole


class Fragment(NamedTuple):
    """Part of a line that was passed on before its end; the last part has the newline.

    If the first part of a line is shown, all parts must be. `is_cut`: the newline is not of the
    rank, because its stream ends in the line.
    """

    stream: Stream
    text: bytes
    is_cut: bool = False

    @property
    def ends(self) -> bool:
        """True if the fragment completes the line."""
        return self.text.endswith(b"\n")


Piece = Lines | Fragment


def rewrite_piece(piece: Piece, rewrite: Callable[[bytes], bytes]) -> Piece:
    """Return a piece with its text changed by `rewrite`."""
    if isinstance(piece, Lines):
        return make_lines(piece.stream, rewrite(piece.text))
    return piece._replace(text=rewrite(piece.text))


def make_lines(stream: Stream, text: bytes) -> Lines:
    """Return a piece of whole lines, from bytes that end with a newline."""
    return Lines(stream, b"", text, len(text))


# --- filter between the ranks' streams and the console ---


class LineFilter:
    """Filter that hides nothing: with --verbose, or in a copy without a `noise_filter`.

    That module of a feature has the one that hides JAX's lines without value for the user.
    """

    @property
    def deadline(self) -> float | None:
        """Time at which to call `expire`, in time.monotonic's seconds; None if nothing is held."""
        return None

    def get_patience_s(self, begun: bytes) -> float:
        """Return the extra seconds for which an unfinished line may wait for its end."""
        return 0.0

    def set_verdict(self, rank: int, verdict: Verdict | None, failure: Failed | None) -> None:
        """Record the verdict on a rank, and the failure that it has reported."""

    def feed(self, piece: Piece, now: float) -> Sequence[Piece]:
        """Return the pieces to show when a piece has come."""
        return (piece,)

    def fold_victims(self, *, own_term: bool, now: float) -> Sequence[Piece]:
        """Hide follow-on errors from now on, because the job ends; return pieces to show now."""
        return ()

    def expire(self, now: float) -> Sequence[Piece]:
        """Return the held pieces to show because they are due; all if `now` is infinity."""
        return ()

    def stop_holding(self, rank: int) -> Sequence[Piece]:
        """Remove a rank's held pieces, and return those to show."""
        return ()

    def pop_mentions(self) -> Sequence[str]:
        """Return a line for each kind of hidden lines, and forget their numbers."""
        return ()

"""Filter between the ranks' streams and the console; this one lets everything through."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mcjax_launch.console.pieces import Piece
    from mcjax_launch.journal.rank_run import Verdict
    from mcjax_launch.wire.hook_messages import Failed


class LineFilter:
    """Filter that hides nothing: with --verbose, or in a copy without `explain/`.

    `explain.noise_filter` has the one that hides JAX's lines without value for the user.
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

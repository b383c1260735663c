"""Time that counts for no limit: somebody debugs the job, or its launcher is stopped."""


class Pause:
    """All such time of a run.

    Times are in time.monotonic's seconds.

    Attributes:
        ended_at: when such a time was last over; 0 before.
        resumed_at: when the launcher last went on after it had been stopped; 0 before.

    """

    def __init__(self) -> None:
        self.ended_at = self.resumed_at = 0.0
        self._since: float | None = None
        self._total_s = 0.0

    def begin(self, now: float) -> None:
        """Somebody debugs from now on."""
        if self._since is None:
            self._since = now

    def end(self, now: float) -> None:
        """Nobody does any more."""
        if self._since is not None:
            self._total_s += now - self._since
            self._since, self.ended_at = None, now

    @property
    def is_on(self) -> bool:
        """Whether somebody debugs."""
        return self._since is not None

    @property
    def total_s(self) -> float:
        """How long somebody debugged it in all, up to the last end of that."""
        return self._total_s
